# SPDX-License-Identifier: MIT
"""Ways to sum the moments of all clouds. The EM loop does not know which one it has.

A sweep is cut into tasks by the sizes of the clouds alone, each task has its own sums, and these
are added in the order of the tasks: the result has the same bits for any number of threads.
"""

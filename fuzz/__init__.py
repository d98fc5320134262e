# SPDX-License-Identifier: MIT
"""Damaged files for every reader and odd problems for `register`: an answer or an InputError, soon,
and nothing else.

`python -m fuzz` runs all of it, `python -m fuzz --only ply --runs 1000` a part. Beside it,
`fuzz.kills` kills commands at random moments, and `fuzz.soak` has two processes work on one folder;
see docs/reliability.md.
"""

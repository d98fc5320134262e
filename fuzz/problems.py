# SPDX-License-Identifier: MIT
"""placeholder"""
def fuzzed(*a): raise SystemExit

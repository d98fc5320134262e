# SPDX-License-Identifier: MIT
"""The compiled loop that reads tables of numbers; see `table`."""

from fractions import Fraction
from typing import no_type_check

import numpy as np

from coframe.compiled import njit

EXPONENTS = 250  # powers of ten whose second half is still a normal number
SPACE, TAB, LINE_FEED, RETURN, COMMA, SEMICOLON, HASH, PERCENT, SLASH = (
    ord(character) for character in " \t\n\r,;#%/"
)
POWERS = np.array(
    [
        (float(Fraction(10) ** e), float(Fraction(10) ** e - Fraction(float(Fraction(10) ** e))))
        for e in range(-EXPONENTS, EXPONENTS + 1)
    ]
)


@njit(cache=True, nogil=True)
@no_type_check
def read(text, i, decimal, table, slow):
    """Fill the table.

    Returns the rows read, where it stopped, the tokens in `slow`, and -1 or a wrong row's length.
    """
    capacity, columns = table.shape
    end, row, delayed = len(text), 0, 0
    while row < capacity:
        while i < end and text[i] in (SPACE, TAB, LINE_FEED, RETURN):
            i += 1
        if i >= end:
            break
        if (
            text[i] == HASH
            or text[i] == PERCENT
            or (text[i] == SLASH and i + 1 < end and text[i + 1] == SLASH)
        ):
            while i < end and text[i] != LINE_FEED and text[i] != RETURN:
                i += 1
            continue
        if delayed + columns > len(slow):
            break
        begin, column, empty = i, 0, True
        while i < end and text[i] != LINE_FEED and text[i] != RETURN:
            c = text[i]
            if c in (SPACE, TAB):
                i += 1
            elif c != decimal and c in (COMMA, SEMICOLON):
                if empty:
                    if column < columns:
                        table[row, column] = np.nan
                    column += 1
                empty = True
                i += 1
            else:
                first = i
                value, i, settled = _token(text, i, decimal)
                if column < columns:
                    table[row, column] = value
                    if not settled:
                        slow[delayed, 0], slow[delayed, 1], slow[delayed, 2] = (
                            row * columns + column,
                            first,
                            i,
                        )
                        delayed += 1
                column += 1
                empty = False
        if empty and 0 < column == columns - 1:  # the last field
            table[row, column] = np.nan
            column += 1
        if column != columns:
            return row, begin, delayed, column
        row += 1
    return row, i, delayed, -1


@njit(cache=True, nogil=True)
@no_type_check
def _token(text, i, decimal):
    """One number: its value, where it ends, and whether the value is certain."""
    end = len(text)
    negative = text[i] == ord("-")
    if negative or text[i] == ord("+"):
        i += 1
    digits, length, exponent, figures, settled = np.uint64(0), 0, 0, 0, True
    while i < end and ord("0") <= text[i] <= ord("9"):
        figures += 1
        if length < 19:
            digits = digits * np.uint64(10) + np.uint64(text[i] - ord("0"))
            length += digits > 0
        else:
            exponent += 1
            settled = settled and text[i] == ord("0")
        i += 1
    if i < end and text[i] == decimal:
        i += 1
        while i < end and ord("0") <= text[i] <= ord("9"):
            figures += 1
            if length < 19:
                digits = digits * np.uint64(10) + np.uint64(text[i] - ord("0"))
                length += digits > 0
                exponent -= 1
            else:
                settled = settled and text[i] == ord("0")
            i += 1
    if figures and i < end and (text[i] == ord("e") or text[i] == ord("E")):
        i += 1
        down = i < end and text[i] == ord("-")
        if i < end and (text[i] == ord("-") or text[i] == ord("+")):
            i += 1
        power, figures = 0, 0
        while i < end and ord("0") <= text[i] <= ord("9"):
            figures += 1
            power = min(10 * power + (text[i] - ord("0")), 100000)
            i += 1
        exponent += -power if down else power
    settled = settled and figures > 0
    while i < end and not _between(text[i], decimal):  # whatever else the token holds
        settled = False
        i += 1
    value, certain = _product(digits, exponent)
    return -value if negative else value, i, settled and certain


@njit(cache=True, nogil=True, inline="always")
@no_type_check
def _between(c, decimal):
    return c in (SPACE, TAB, LINE_FEED, RETURN) or (c != decimal and c in (COMMA, SEMICOLON))


@njit(cache=True, nogil=True)
@no_type_check
def _product(digits, exponent):
    """digits * 10^exponent to the nearest double, and whether it is certain to be the nearest."""
    if digits == 0:
        return 0.0, True
    # both factors are exact, so one rounding is the right one
    if digits < np.uint64(1 << 53) and -22 <= exponent <= 22:
        power = POWERS[EXPONENTS + abs(exponent), 0]
        return (float(digits) * power if exponent >= 0 else float(digits) / power), True
    if exponent < -EXPONENTS or exponent > EXPONENTS:
        return 0.0, False
    high = float(digits >> np.uint64(32)) * 4294967296.0  # both halves are exact
    low = float(digits & np.uint64(0xFFFFFFFF))
    total = high + low
    low = low - (total - high)
    high = total
    power, rest = POWERS[EXPONENTS + exponent, 0], POWERS[EXPONENTS + exponent, 1]
    product = high * power
    a = 134217729.0 * high  # Veltkamp's split and Dekker's product: the error of `product`, exactly
    a1 = a - (a - high)
    a2 = high - a1
    b = 134217729.0 * power
    b1 = b - (b - power)
    b2 = power - b1
    error = ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2
    error += high * rest + low * power
    value = product + error
    left = error - (value - product)
    doubt = abs(value) * 3.2e-30  # 2^-98: the sums above are good to about 2^-103
    return value, value + (left + doubt) == value and value + (left - doubt) == value

# SPDX-License-Identifier: MIT
"""The reader of numbers agrees with Python's, to the last bit."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coframe.io.table import table

digits = st.text("0123456789", min_size=1, max_size=25)
decimals = st.builds(
    lambda sign, whole, part, exponent: sign + whole + part + exponent,
    st.sampled_from(["", "-", "+"]),
    digits,
    st.one_of(st.just(""), st.just("."), digits.map(".{}".format)),
    st.one_of(
        st.just(""), st.integers(-400, 400).map("e{}".format), st.integers(0, 30).map("E+{}".format)
    ),
)
doubles = st.floats().map(repr)


@given(st.lists(st.one_of(decimals, doubles), min_size=1, max_size=30))
def test_every_number_is_the_nearest_double(tokens: list[str]) -> None:
    found, _ = table("\n".join(tokens).encode(), 1)
    np.testing.assert_array_equal(found[:, 0], [float(token) for token in tokens])


def test_halfway_cases_are_settled_by_python() -> None:
    """Numbers half way between two doubles, and one unit of their 19 digits to either side."""
    rng = np.random.default_rng(0)
    tokens = []
    for _ in range(2000):
        x = rng.uniform(1, 2) * 10.0 ** rng.integers(-20, 20)
        middle = f"{(x + np.nextafter(x, 2 * x)) / 2:.18e}"
        tokens += [middle, f"{np.nextafter(x, 0):.17e}5"]
    found, _ = table("\n".join(tokens).encode(), 1)
    np.testing.assert_array_equal(found[:, 0], [float(token) for token in tokens])
    # exactly half way: 2^53 + 1, and its neighbours
    exact = [
        str(2**53 + 1),
        str(2**54 + 2),
        str(2**54 + 6),
        "9007199254740993.0",
        "9007199254740992.9999",
    ]
    np.testing.assert_array_equal(
        table("\n".join(exact).encode(), 1)[0][:, 0], [float(token) for token in exact]
    )


def test_the_sign_of_zero_stays() -> None:
    found, _ = table(b"-0.0 0", 2)
    assert struct.pack("<2d", *found[0]) == struct.pack("<2d", -0.0, 0.0)


@pytest.mark.parametrize(
    "text",
    [
        b"1 2 3\n4 5 6\n",
        b"1\t2 ,3\r\n\r\n4;5; 6",
        b"# x y z\n1,2,3,\n// two\n% three\n\n  4 5 6  ",
        b"1e0 +2. 3.0e0\r4 .5e1 600e-2\r",
    ],
)
def test_separators_line_ends_and_comments(text: bytes) -> None:
    np.testing.assert_array_equal(table(text, 3)[0], [[1, 2, 3], [4, 5, 6]])


def test_empty_fields_nan_and_decimal_commas() -> None:
    np.testing.assert_array_equal(
        table(b"1,,3\n,2,\nnan,inf,-INF", 3)[0][[0, 2]], [[1, np.nan, 3], [np.nan, np.inf, -np.inf]]
    )
    np.testing.assert_array_equal(table(b"1,5;-2,25;3e1", 3, decimal=",")[0], [[1.5, -2.25, 30]])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"1 2\n3\n", "line 2: expected 2 numbers, found 1"),
        (b"1 2\n\n3 4 5\n", "line 3: expected 2 numbers, found 3"),
        (b"1 2\n3 x4\n", "line 2: expected a number, found 'x4'"),
        (b"1 1_0\n", "'1_0'"),
        (b"1 --2", "'--2'"),
        (b"1 2e", "'2e'"),
        (b"1 \xff", "'ÿ'"),
    ],
)
def test_what_is_no_number_is_named(text: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        table(text, 2)


def test_many_slow_numbers_are_read_in_turns() -> None:
    tokens = [f"{x:.30f}" for x in np.random.default_rng(0).normal(size=300)]
    found, _ = table(" ".join(tokens).encode().replace(b" ", b"\n"), 1, slow_tokens=8)
    np.testing.assert_array_equal(found[:, 0], [float(token) for token in tokens])
    assert table(b"1\n2\n3\n", 1, rows=2)[0].tolist() == [[1], [2]]


@given(st.binary(max_size=200), st.integers(1, 5))
def test_anything_else_is_a_value_error(text: bytes, columns: int) -> None:
    try:
        found, _ = table(text, columns)
    except ValueError:
        return
    assert found.shape[1] == columns

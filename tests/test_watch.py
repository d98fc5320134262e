# SPDX-License-Identifier: MIT
"""The guess of the time left, and the line on the terminal."""

import io
import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import coframe
from coframe.cli.show import verdict_table
from coframe.cli.watch import TimeLeft, about
from coframe.data import simulate


class Clock:
    time = 100.0

    def __call__(self) -> float:
        return self.time


def test_work_at_an_even_pace_is_foreseen() -> None:
    clock = Clock()
    left = TimeLeft(clock)
    left.report(0.0)
    assert left.seconds() is None
    for share in (0.1, 0.35, 0.6, 0.9):
        clock.time = 100 + 20 * share
        left.report(share)
        assert left.seconds() == pytest.approx(20 * (1 - share))
    clock.time += 1.5
    assert left.seconds() == pytest.approx(0.5)
    clock.time += 1
    assert left.seconds() is None  # the guess was too short: nothing is known


@given(st.lists(st.tuples(st.floats(0.01, 50), st.floats(0, 1)), min_size=1, max_size=20))
def test_the_guess_never_rises_by_more_than_half_of_what_is_new(
    steps: list[tuple[float, float]],
) -> None:
    clock = Clock()
    left = TimeLeft(clock)
    left.report(0.0)
    for seconds, share in steps:
        clock.time += seconds
        before, done = left.seconds(), left.share
        left.report(share)
        after = left.seconds()
        if share <= done:
            assert after == before
        elif before is not None and after is not None:
            fresh = (clock.time - 100) * (1 - share) / share
            assert min(before, fresh) - 1e-6 <= after <= max(before, fresh) + 1e-6
            assert abs(after - before) <= abs(fresh - before) / 2 + 1e-6


def test_words() -> None:
    assert [about(s) for s in (None, 0.2, 7.2, 47.0, 61.0, 4000.0)] == [
        "",
        "about 1 s left",
        "about 8 s left",
        "about 50 s left",
        "about 2 min left",
        "about 1.2 h left",
    ]


def test_register_tells_how_far_it_has_come() -> None:
    scene = simulate.scene(3, 300, degrees=40.0, rng=np.random.default_rng(0))
    shares: list[float] = []
    coframe.register(
        scene.clouds, options=coframe.Options(components=50, threads=1), on_progress=shares.append
    )
    assert len(shares) >= 6
    assert 0 < shares[0] < 0.2
    assert 0.8 < max(shares) <= 1


def test_a_terminal_shows_a_line(tmp_path: Path) -> None:
    pty = pytest.importorskip("pty", reason="needs a terminal as POSIX has it")
    shown, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"}
    command = [
        sys.executable,
        "-m",
        "coframe",
        "demo",
        "--points",
        "400",
        "--views",
        "3",
        "-o",
        "out",
    ]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=terminal, stderr=terminal, env=environment
    )
    os.close(terminal)
    raw = b""
    with suppress(OSError):  # the other end is closed
        while part := os.read(shown, 10_000):
            raw += part
    os.close(shown)
    assert process.wait() == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", raw.decode())
    assert re.search(
        r"iteration \d+: log-likelihood \S+, pose change \de-?\d+ about \d+ s left", text
    )
    lines = [line for line in re.split(r"[\r\n]+", text) if "iteration" in line]
    assert max(map(len, lines)) <= 80
    assert "rotation error" in text


@pytest.mark.parametrize("plain", [False, True])
def test_no_color_means_no_colours(monkeypatch: pytest.MonkeyPatch, plain: bool) -> None:
    monkeypatch.setenv("NO_COLOR", "1" if plain else "")
    verdict = coframe.Verdict("failed", "it shares [nothing]", 0.0, 0.0, 0.0, 0.0)
    result = SimpleNamespace(names=("[red]a",), counts=(5,), verdicts=(verdict,))
    console = Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=100)
    console.print(verdict_table(result))  # type: ignore[arg-type]
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert ("31m" in text) != plain
    assert "[red]a" in text
    assert "it shares [nothing]" in text

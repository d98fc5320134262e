# SPDX-License-Identifier: MIT
"""A run that is interrupted goes on to the same bits, whatever interrupted it and when."""

import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import coframe
from coframe import geometry
from coframe.align.recipe import ALIGN
from coframe.compute.checkpoint import digest
from coframe.data import simulate
from coframe.io import ply

SMALL = coframe.Options(components=60, points=300, iterations=6, threads=2)


@pytest.fixture(scope="module")
def scene() -> simulate.SimulatedScene:
    return simulate.scene(
        3, 300, degrees=50.0, noise_db=45.0, outliers=0.1, rng=np.random.default_rng(3)
    )


@pytest.fixture(scope="module")
def whole(scene: simulate.SimulatedScene) -> tuple[coframe.Registration, int]:
    """The result of a run that nothing interrupts, and the number of its iterations."""
    count = Count()
    return coframe.register(scene.clouds, options=SMALL, on_iteration=count), count.calls


class Count:
    """Counts calls."""

    calls = 0

    def __call__(self, iteration: coframe.Iteration) -> None:
        self.calls += 1


class Cut(Exception):  # noqa: N818
    """What the tests interrupt runs with."""


def interrupt_at(count: int):
    calls = 0

    def on_iteration(iteration: coframe.Iteration) -> None:
        nonlocal calls
        calls += 1
        if calls >= count:  # every thread's next iteration, as well
            raise Cut

    return on_iteration


def assert_same(a: coframe.Registration, b: coframe.Registration) -> None:
    assert np.array_equal(a.poses, b.poses)
    assert np.array_equal(a.mixture.means, b.mixture.means)
    assert np.array_equal(a.mixture.covariances, b.mixture.covariances)
    assert np.array_equal(a.pose_covariance, b.pose_covariance)
    assert [step.log_likelihood for step in a.history] == [
        step.log_likelihood for step in b.history
    ]
    assert a.status is b.status
    assert a.verdicts == b.verdicts


@pytest.mark.parametrize("count", [1, 60])
def test_an_interrupted_run_goes_on_to_the_same_bits(
    scene: simulate.SimulatedScene,
    whole: tuple[coframe.Registration, int],
    tmp_path: Path,
    count: int,
) -> None:
    path = tmp_path / "run.db"
    with pytest.raises(Cut), coframe.Checkpoint(path, every=0.0) as checkpoint:
        coframe.register(
            scene.clouds, options=SMALL, checkpoint=checkpoint, on_iteration=interrupt_at(count)
        )
    seen = Count()
    with coframe.Checkpoint(path, resume=True) as checkpoint:
        assert checkpoint.resumed
        again = coframe.register(
            scene.clouds, options=SMALL, checkpoint=checkpoint, on_iteration=seen
        )
    assert_same(again, whole[0])
    # what was done is not done again, but for the turns that were cut short
    assert seen.calls <= whole[1] - count + 4
    assert not path.exists()


@pytest.mark.slow
def test_interrupted_again_and_again(
    scene: simulate.SimulatedScene, whole: tuple[coframe.Registration, int], tmp_path: Path
) -> None:
    path = tmp_path / "run.db"
    for _ in range(50):
        try:
            with coframe.Checkpoint(path, resume=True, every=0.0) as checkpoint:
                result = coframe.register(
                    scene.clouds,
                    options=SMALL,
                    checkpoint=checkpoint,
                    on_iteration=interrupt_at(30),
                )
            break
        except Cut:
            assert path.exists()
    assert_same(result, whole[0])


def test_a_checkpoint_changes_nothing(
    scene: simulate.SimulatedScene, whole: tuple[coframe.Registration, int], tmp_path: Path
) -> None:
    with coframe.Checkpoint(tmp_path / "run.db", every=0.0) as checkpoint:
        assert_same(coframe.register(scene.clouds, options=SMALL, checkpoint=checkpoint), whole[0])
    assert list(tmp_path.iterdir()) == []


def test_stop_ends_the_run_and_keeps_what_is_done(
    scene: simulate.SimulatedScene, tmp_path: Path
) -> None:
    path = tmp_path / "run.db"
    checkpoint = coframe.Checkpoint(path)
    with pytest.raises(KeyboardInterrupt), checkpoint:
        coframe.register(
            scene.clouds,
            options=SMALL,
            checkpoint=checkpoint,
            on_iteration=lambda _: checkpoint.stop(),
        )
    assert path.stat().st_size > 10_000


@pytest.fixture
def left(scene: simulate.SimulatedScene, tmp_path: Path) -> Path:
    """The checkpoint of an interrupted run."""
    path = tmp_path / "out" / "run.db"
    with pytest.raises(Cut), coframe.Checkpoint(path) as checkpoint:
        start = geometry.identity(3, 3)
        coframe.register(
            scene.clouds, start, options=SMALL, checkpoint=checkpoint, on_iteration=interrupt_at(3)
        )
    return path


def test_what_has_changed_is_refused_by_name(scene: simulate.SimulatedScene, left: Path) -> None:
    start = geometry.identity(3, 3)
    moved = [scene.clouds[0], scene.clouds[1] + 1e-9, scene.clouds[2]]
    cases = {
        "cloud 1": lambda checkpoint: coframe.register(
            moved, start, options=SMALL, checkpoint=checkpoint
        ),
        "clouds": lambda checkpoint: coframe.register(
            scene.clouds[:2], start[:2], options=SMALL, checkpoint=checkpoint
        ),
        "components": lambda checkpoint: coframe.register(
            scene.clouds,
            start,
            options=coframe.Options(components=61, points=300, iterations=6),
            checkpoint=checkpoint,
        ),
        "poses": lambda checkpoint: coframe.register(
            scene.clouds, options=SMALL, checkpoint=checkpoint
        ),
        "poses, weights, fixed, priors or recipe": lambda checkpoint: coframe.register(
            scene.clouds,
            start,
            options=SMALL,
            checkpoint=checkpoint,
            recipe=replace(ALIGN, chains=1),
        ),
    }
    for name, run in cases.items():
        with (
            pytest.raises(coframe.InputError, match=f"^{name}.*interrupted run in"),
            coframe.Checkpoint(left, resume=True) as checkpoint,
        ):
            run(checkpoint)
        assert left.exists()  # the refusal costs nothing
    other_threads = coframe.Options(components=60, points=300, iterations=6, threads=1)
    with coframe.Checkpoint(left, resume=True) as checkpoint:
        coframe.register(scene.clouds, start, options=other_threads, checkpoint=checkpoint)


def test_a_new_run_begins_anew(scene: simulate.SimulatedScene, left: Path) -> None:
    with coframe.Checkpoint(left) as checkpoint:
        assert not checkpoint.resumed
        coframe.register(scene.clouds[:2], options=SMALL, checkpoint=checkpoint)


@pytest.mark.parametrize(
    "damage",
    [b"not a database at all, but long enough to look at" * 40, b"SQLite format 3\0" + b"x" * 4080],
)
def test_a_foreign_file_is_refused(
    left: Path, scene: simulate.SimulatedScene, damage: bytes
) -> None:
    left.write_bytes(damage)
    with (
        pytest.raises(coframe.InputError, match=r"run\.db: expected"),
        coframe.Checkpoint(left, resume=True) as checkpoint,
    ):
        coframe.register(scene.clouds, options=SMALL, checkpoint=checkpoint)


def test_a_number_that_has_changed_on_disk_is_not_gone_on_from(
    left: Path, scene: simulate.SimulatedScene
) -> None:
    with closing(sqlite3.connect(left)) as file, file:
        ((key, value),) = file.execute(
            "SELECT key, value FROM record WHERE key != 'run' LIMIT 1"
        ).fetchall()
        file.execute(
            "UPDATE record SET value = ? WHERE key = ?",
            (value[:-200] + bytes([value[-200] ^ 1]) + value[-199:], key),
        )
    with (
        pytest.raises(coframe.InputError, match="found a damaged one"),
        coframe.Checkpoint(left, resume=True) as checkpoint,
    ):
        checkpoint._read(key)


def test_digests_tell_shapes_and_types_apart() -> None:
    a = np.arange(6.0)
    assert digest(a) == digest(a.copy())
    assert (
        len(
            {
                digest(a),
                digest(a.reshape(2, 3)),
                digest(a.astype(np.float32)),
                digest(a[:3], a[3:]),
                digest(-a),
            }
        )
        == 5
    )


RESULTS = ("poses.json", "merged.ply", "model.ply", "state.npz")


@pytest.fixture(scope="module")
def folder(scene: simulate.SimulatedScene, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scans in files, and the result of a run that nothing interrupts."""
    folder = tmp_path_factory.mktemp("scans")
    for j, cloud in enumerate(scene.clouds):
        ply.write(folder / f"scan{j}.ply", cloud)
    assert ended(command(folder, "whole")) == (0, "")
    return folder


# The command, with a checkpoint that is written after every step.
CODE = """
from functools import partial
import coframe
from coframe.cli import main
coframe.Checkpoint = partial(coframe.Checkpoint, every=0.0)
main()
"""


def command(folder: Path, output: str, *options: str) -> "subprocess.Popen[str]":
    files = [str(folder / f"scan{j}.ply") for j in range(3)]
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            CODE,
            "register",
            *files,
            "-o",
            str(folder / output),
            "--no-report",
            "--quiet",
            *options,
        ],
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: "subprocess.Popen[str]") -> tuple[int, str]:
    _, errors = process.communicate()
    return process.returncode, errors


def wait_for(process: "subprocess.Popen[str]", path: Path, size: int) -> None:
    while process.poll() is None and not (path.exists() and path.stat().st_size >= size):
        time.sleep(0.005)


def assert_whole(folder: Path, output: str) -> None:
    for name in RESULTS:
        assert (folder / output / name).read_bytes() == (folder / "whole" / name).read_bytes(), name
    assert not (folder / output / "checkpoint.db").exists()
    assert not [path for path in (folder / output).iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_a_signal_costs_nothing(folder: Path, number: signal.Signals, code: int) -> None:
    output = number.name
    process = command(folder, output)
    wait_for(process, folder / output / "checkpoint.db", 300_000)
    process.send_signal(number)
    returned, errors = ended(process)
    assert returned == code
    if code > 0:
        assert errors.count("\n") == 1
        assert errors.startswith("coframe: interrupted; go on with: coframe register ")
    assert [name for name in RESULTS if (folder / output / name).exists()] == []
    assert (folder / output / "checkpoint.db").stat().st_size > 50_000
    assert ended(command(folder, output, "--resume")) == (0, "")
    assert_whole(folder, output)

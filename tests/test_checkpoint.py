# SPDX-License-Identifier: MIT
"""A run that is interrupted goes on to the same bits, whatever interrupted it and when."""

import io
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import zipfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import coframe
from coframe import geometry
from coframe.align.recipe import ALIGN
from coframe.compute import database
from coframe.compute.checkpoint import _sealed, digest
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
            recipe=replace(ALIGN, repetitions=1),
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


# Checkpoints of strangers

RECORD = "CREATE TABLE record (key TEXT PRIMARY KEY, value BLOB)"
ENDLESS = (
    "WITH RECURSIVE count(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM count)"
    " SELECT 'run' AS key, n AS value FROM count WHERE n < 0"
)
STRANGE = {
    "a view": [f"CREATE VIEW record AS {ENDLESS}"],
    "a view beside": [RECORD, f"CREATE VIEW other AS {ENDLESS}"],
    "a trigger": [
        RECORD,
        "CREATE TRIGGER first AFTER INSERT ON record BEGIN DELETE FROM record; END",
    ],
    "a generated column": [
        "CREATE TABLE record (key TEXT PRIMARY KEY, value BLOB AS (zeroblob(1000000000)))"
    ],
    "a virtual table": ["CREATE VIRTUAL TABLE record USING fts5(key, value)"],
    "another table": [RECORD, "CREATE TABLE photographs (content BLOB)"],
    "no table": ["CREATE TABLE photographs (content BLOB)"],
    "a default": ["CREATE TABLE record (key TEXT PRIMARY KEY, value BLOB DEFAULT 1)"],
}


def make_strange(path: Path, statements: list[str]) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as file, file:
        for statement in statements:
            file.execute(statement)
    return path.read_bytes()


def test_an_endless_query_in_a_received_checkpoint_is_refused_at_once(folder: Path) -> None:
    path = folder / "received" / "checkpoint.db"
    content = make_strange(path, STRANGE["a view"])
    process = command(folder, "received", "--resume")
    try:
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 2
    assert errors.count("\n") == 1
    assert "checkpoint.db: expected a checkpoint of coframe" in errors
    assert path.read_bytes() == content


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("strange", [name for name in STRANGE if name != "a view"])
def test_a_database_of_another_kind_is_refused_and_kept(
    scene: simulate.SimulatedScene, tmp_path: Path, strange: str, resume: bool
) -> None:
    path = tmp_path / "run.db"
    content = make_strange(path, STRANGE[strange])
    with (
        pytest.raises(coframe.InputError, match=r"run\.db: expected a checkpoint.*move it away"),
        coframe.Checkpoint(path, resume=resume) as checkpoint,
    ):
        checkpoint.begin({}, [], "")
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("resume", [True, False])
def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path: Path, resume: bool) -> None:
    path = tmp_path / "run.db"
    path.write_text("my thesis, the only copy")
    with (
        pytest.raises(coframe.InputError, match=r"run\.db: expected a checkpoint.*move it away"),
        coframe.Checkpoint(path, resume=resume) as checkpoint,
    ):
        checkpoint.begin({}, [], "")
    assert path.read_text() == "my thesis, the only copy"


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("kind", ["FIFO", "device", "link", "folder"])
def test_a_checkpoint_is_a_regular_file(tmp_path: Path, kind: str, resume: bool) -> None:
    path, other = tmp_path / "run.db", tmp_path / "other.db"
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        make_strange(other, [RECORD])
        path.symlink_to(other)
    with (
        pytest.raises(coframe.InputError, match=r"run\.db: expected a checkpoint.*move it away"),
        coframe.Checkpoint(path, resume=resume) as checkpoint,
    ):
        checkpoint.begin({}, [], "")
    assert os.path.lexists(path)


def test_a_journal_that_names_other_files_to_be_deleted_is_refused(left: Path) -> None:
    """SQLite deletes the file that the end of a journal names, once the journal is rolled back."""
    victim = left.parent / "victim.txt"
    victim.write_text("the only copy")
    with closing(sqlite3.connect(left)) as file:
        file.execute("PRAGMA cache_size = 1")
        file.execute("PRAGMA cache_spill = 1")
        file.execute("BEGIN IMMEDIATE")
        file.executemany(
            "INSERT INTO record VALUES (?, ?)", [(f"x{n}", bytes(8000)) for n in range(300)]
        )
        journal = left.with_name(f"{left.name}-journal").read_bytes()
        content = left.read_bytes()
        file.rollback()
    name = str(victim).encode()
    total = sum(name)
    end = name + len(name).to_bytes(4) + (total & 0xFFFFFFFF).to_bytes(4)
    magic = bytes.fromhex("d9d505f920a163d7")
    assert journal[:8] == magic
    page = (0x40000000 // 4096 + 1).to_bytes(4)
    left.write_bytes(content)
    left.with_name(f"{left.name}-journal").write_bytes(journal + page + end + magic)
    with (
        pytest.raises(coframe.InputError, match=r"run\.db-journal: expected"),
        coframe.Checkpoint(left, resume=True) as checkpoint,
    ):
        checkpoint.begin({}, [], "")
    assert victim.exists()


def test_a_stop_ends_any_query() -> None:
    """In a database whose schema nobody has checked."""
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as file:
        file.execute(f"CREATE VIEW record AS {ENDLESS}")
        stopped = threading.Event()
        threading.Timer(0.2, stopped.set).start()
        with pytest.raises(sqlite3.OperationalError, match="interrupted"):
            database.find(file, "run", most=1000, is_stopped=stopped.is_set)


def test_a_record_is_no_larger_than_its_file(left: Path) -> None:
    with closing(sqlite3.connect(left)) as file:
        assert database.find(file, "run", most=100_000, is_stopped=lambda: False) is not None
        with pytest.raises(sqlite3.DataError, match="too big"):
            database.find(file, "run", most=100, is_stopped=lambda: False)


def test_a_record_unpacks_to_no_more_than_it_should(left: Path) -> None:
    """A kilobyte that promises eight terabytes, under a correct checksum."""
    packed = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}
    with zipfile.ZipFile(packed, "w") as archive, archive.open("value.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, header)
    with closing(sqlite3.connect(left)) as file, file:
        file.execute(
            "INSERT OR REPLACE INTO record VALUES ('x', ?)",
            (_sealed("x", packed.getvalue()),),
        )
    with (
        pytest.raises(coframe.InputError, match="found a damaged one"),
        coframe.Checkpoint(left, resume=True) as checkpoint,
    ):
        checkpoint.kept("x")


def test_a_checkpoint_that_a_power_cut_left_half_written_is_rolled_back(left: Path) -> None:
    """The journal of a write that did not end is undone, and the run goes on."""
    with closing(sqlite3.connect(left)) as file:
        file.execute("PRAGMA cache_size = 1")
        file.execute("BEGIN IMMEDIATE")
        file.executemany(
            "INSERT INTO record VALUES (?, ?)", [(f"x{n}", bytes(8000)) for n in range(300)]
        )
        journal, content = left.with_name(f"{left.name}-journal").read_bytes(), left.read_bytes()
        file.rollback()
    for resume in (True, False):
        left.write_bytes(content)
        left.with_name(f"{left.name}-journal").write_bytes(journal)
        with pytest.raises(Cut), coframe.Checkpoint(left, resume=resume) as checkpoint:
            assert (checkpoint.kept("run") is not None) == resume
            assert checkpoint.kept("x0") is None
            raise Cut


def test_an_empty_file_is_what_a_run_killed_at_once_leaves(tmp_path: Path) -> None:
    for resume in (True, False):
        (tmp_path / "run.db").touch()
        with coframe.Checkpoint(tmp_path / "run.db", resume=resume) as checkpoint:
            checkpoint.begin({}, [], "")


@pytest.fixture
def cut_off(tmp_path: Path) -> Path:
    """A database whose process was killed when the first page of a commit was written."""
    path = tmp_path / "run.db"
    journal = path.with_name("run.db-journal")
    with closing(database.connect(path)) as file:
        file.execute("INSERT INTO record VALUES ('old', x'01')")
        file.commit()
        old = path.read_bytes()
        file.execute("PRAGMA journal_mode = PERSIST")
        file.execute("INSERT INTO record VALUES ('new', zeroblob(100000))")
        head = journal.read_bytes()[:28]
        file.commit()
    page = int.from_bytes(old[16:18], "big")
    path.write_bytes(path.read_bytes()[:page] + old[page:])
    # All records of the journal count: as many as there are, which SQLite writes as -1.
    journal.write_bytes(database.JOURNAL + b"\xff" * 4 + head[12:] + journal.read_bytes()[28:])
    return path


def test_a_commit_that_was_cut_off_is_undone(cut_off: Path) -> None:
    before = cut_off.read_bytes()
    database.check_ours(cut_off)
    assert cut_off.read_bytes() == before
    with closing(database.connect(cut_off)) as file:
        assert file.execute("SELECT key FROM record").fetchall() == [("old",)]


def test_a_damaged_database_is_refused_beside_a_journal_too(cut_off: Path) -> None:
    journal = cut_off.with_name("run.db-journal")
    journal.write_bytes(journal.read_bytes()[:28])  # nothing that could be undone
    with pytest.raises(coframe.InputError, match=r"run\.db: expected a checkpoint of coframe"):
        database.check_ours(cut_off)


@pytest.mark.parametrize("resume", [True, False])
def test_a_foreign_journal_is_refused_and_kept(tmp_path: Path, resume: bool) -> None:
    journal = tmp_path / "run.db-journal"
    journal.write_text("notes of a long day in the field")
    with (
        pytest.raises(coframe.InputError, match=r"run\.db-journal: expected.*move it away"),
        coframe.Checkpoint(tmp_path / "run.db", resume=resume) as checkpoint,
    ):
        checkpoint.begin({}, [], "")
    assert list(tmp_path.iterdir()) == [journal]


def test_a_checkpoint_of_release_0_1_is_ours(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    make_strange(path, [RECORD, "INSERT INTO record VALUES ('run', x'00')"])
    with (
        pytest.raises(coframe.InputError, match="found a damaged one; begin anew without --resume"),
        coframe.Checkpoint(path, resume=True) as checkpoint,
    ):
        checkpoint.begin({}, [], "")
    with coframe.Checkpoint(path) as checkpoint:
        checkpoint.begin({}, [], "")
    assert not path.exists()

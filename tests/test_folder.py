# SPDX-License-Identifier: MIT
"""Result folders: replaced all at once, by one process at a time, and nothing else is touched."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from scenes import bits, run_cli

import coframe
from coframe import InputError, geometry, report
from coframe.data import simulate
from coframe.io import clouds as cloud_files
from coframe.io import manifest, ply, transaction
from coframe.io import poses as pose_files
from coframe.io.manifest import Manifest
from coframe.result.export import export

FILES = {"poses.json", "merged.ply", "model.ply", "state.npz", "run.json", "report.html"}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four scans, and the result of the first three in `out`."""
    folder = tmp_path_factory.mktemp("original")
    scene = simulate.scene(4, 300, degrees=60.0, noise_db=50.0, rng=np.random.default_rng(1))
    for j, cloud in enumerate(scene.clouds):
        ply.write(folder / f"scan{j}.ply", cloud)
    names = [f"scan{j}" for j in range(4)]
    pose_files.write(folder / "start.json", names, scene.poses)
    scans = [f"scan{j}.ply" for j in range(3)]
    done = run_cli("register", *scans, "--poses", "start.json", "-o", "out", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


@pytest.fixture
def work(original: Path, tmp_path: Path) -> Path:
    """A copy of it, with a file of the user's in the result folder."""
    shutil.copytree(original, tmp_path / "work")
    (tmp_path / "work/out/notes.txt").write_text("of the user's\n")
    return tmp_path / "work"


def content(folder: Path) -> dict[str, tuple[bytes, int]]:
    """All files with their bytes and times."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in files
    }


def same(one: coframe.Registration, other: coframe.Registration) -> bool:
    """Whether two results are the same to the bit, as far as files keep them."""
    return (
        one.names == other.names
        and bits(one.poses, one.mixture.means) == bits(other.poses, other.mixture.means)
        and one.merged().shape == other.merged().shape
        and np.allclose(one.merged(), other.merged(), rtol=0, atol=1e-9)
    )


def killed_at_rename(number: int, action: Callable[[], object]) -> bool:
    """Run an action in a child that is gone before it renames for the n-th time."""
    child = os.fork()
    if child == 0:
        left = number

        def counting(real: Callable[..., None]) -> Callable[..., None]:
            def guarded(*paths: str) -> None:
                nonlocal left
                left -= 1
                if not left:
                    os._exit(9)
                real(*paths)

            return guarded

        os.rename, os.replace = counting(os.rename), counting(os.replace)
        try:
            action()
        except BaseException:
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9)
    return code == 9


def check_every_kill(
    folder: Path, old: coframe.Registration, new: coframe.Registration, scratch: Path
) -> None:
    """Killed at each rename while `new` replaces `old`, one of them is there whole."""
    found = set()
    for number in range(1, 100):
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.copytree(folder, scratch)
        (scratch / "notes.txt").write_text("of the user's\n")
        killed = killed_at_rename(number, lambda: report.write_folder(new, scratch))
        loaded = coframe.load(scratch)
        assert same(loaded, old) or same(loaded, new)
        found.add(same(loaded, new))
        assert (scratch / "notes.txt").read_text() == "of the user's\n"
        if not killed:
            break
        report.write_folder(new, scratch)  # can be repeated
        assert same(coframe.load(scratch), new)
        assert not list(scratch.glob(".*"))
    assert found == {False, True}
    assert number > 5


def test_an_interrupted_extend_leaves_the_old_result_or_the_new_one(
    original: Path, tmp_path: Path
) -> None:
    old = coframe.load(original / "out")
    new = coframe.extend(old, original / "scan3.ply", "previous")
    check_every_kill(original / "out", old, new, tmp_path / "out")


def test_an_interrupted_second_run_leaves_the_old_result_or_the_new_one(
    original: Path, tmp_path: Path
) -> None:
    old = coframe.load(original / "out")
    check_every_kill(original / "out", old, old.relative_to(2), tmp_path / "out")


def test_files_of_different_results_do_not_load(original: Path, tmp_path: Path) -> None:
    old = coframe.load(original / "out")
    old.save(tmp_path / "a")
    old.relative_to(1).save(tmp_path / "b")
    for name in ("poses.json", "merged.ply", "state.npz"):
        shutil.copytree(tmp_path / "a", tmp_path / "mix", dirs_exist_ok=True)
        shutil.copy(tmp_path / "b" / name, tmp_path / "mix" / name)
        with pytest.raises(InputError, match=rf"{name}: has changed since coframe wrote it"):
            coframe.load(tmp_path / "mix")
        # as of release 0.1, which wrote no manifest
        (tmp_path / "mix/manifest.json").unlink()
        with pytest.raises(InputError, match="are of different results"):
            coframe.load(tmp_path / "mix")
    (tmp_path / "a/manifest.json").unlink()
    assert same(coframe.load(tmp_path / "a"), old)


def test_export_leaves_the_result_whole(work: Path) -> None:
    before = content(work / "out")
    for form in ("ply", "pcd", "json", "matrix", "aligned", "ply"):
        done = run_cli("export", "out", "--to", form, "--inputs", ".", cwd=work)
        assert (done.returncode, done.stderr) == (0, "")
    after = content(work / "out")
    assert {name: after[name] for name in before} == before
    assert same(coframe.load(work / "out"), coframe.load(work / "out"))
    assert run_cli("report", "out", cwd=work).returncode == 0
    assert run_cli("extend", "out", "scan3.ply", cwd=work).returncode == 0
    assert (work / "out/points.ply").exists()
    assert run_cli("export", "out", "--to", "ply", cwd=work).returncode == 0  # of the new result


def test_export_replaces_nothing_but_exports(work: Path) -> None:
    (work / "thesis.xyz").write_text("0 0 0\n")
    result = coframe.load(work / "out")
    for target, reason in (
        ("out/merged.ply", "belongs to the result"),
        ("scan0.ply", "is an input"),
        ("thesis.xyz", "would be replaced; move it away, or replace it with --overwrite"),
        ("out/manifest.json", "belongs to the result"),
    ):
        before = content(work)
        form = Path(target).suffix[1:]
        with pytest.raises(InputError, match=reason):
            export(result, form, work / "out", work / target)
        assert content(work) == before
    os.symlink("scan0.ply", work / "link.ply")
    os.link(work / "scan1.ply", work / "hard.ply")
    before = content(work)
    for target in ("link.ply", "hard.ply"):
        with pytest.raises(InputError, match="is an input"):
            export(result, "ply", work / "out", work / target, overwrite=True)
    assert content(work) == before
    export(result, "xyz", work / "out", work / "thesis.xyz", overwrite=True)
    export(result, "xyz", work / "out", work / "thesis.xyz")  # its own now
    (work / "out/.coframe-exports").unlink()
    export(result, "xyz", work / "out", work / "thesis.xyz")  # nothing is lost
    assert len(cloud_files.read(work / "thesis.xyz")) == len(result.merged())


def test_aligned_copies_do_not_replace_inputs(tmp_path: Path) -> None:
    clouds = simulate.scene(2, 200, degrees=30.0, rng=np.random.default_rng(0)).clouds
    for name, cloud in zip("ab", clouds, strict=True):
        (tmp_path / name).mkdir()
        ply.write(tmp_path / name / "q.ply", cloud)
    assert run_cli("register", "a/q.ply", "b/q.ply", "-o", "out", cwd=tmp_path).returncode in (0, 1)
    before = content(tmp_path)
    for target in ("b", "a/../b", "./b/"):
        done = run_cli("export", "out", "--to", "aligned", "-o", target, cwd=tmp_path)
        assert done.returncode == 2
        assert "q.ply: is an input and would be replaced" in done.stderr
        assert content(tmp_path) == before
    done = run_cli("export", "out", "--to", "aligned", "-o", "c", cwd=tmp_path)
    assert (done.returncode, done.stdout.split()) == (0, ["c/q.ply", "c/q-2.ply"])


@pytest.mark.parametrize("spelling", ["merged.ply", "link.ply", "hard.ply", "../t/merged.ply"])
def test_inputs_are_not_overwritten(original: Path, tmp_path: Path, spelling: str) -> None:
    t = tmp_path / "t"
    t.mkdir()
    shutil.copy(original / "scan0.ply", t / "merged.ply")
    shutil.copy(original / "scan1.ply", t / "model.ply")
    os.symlink("merged.ply", t / "link.ply")
    os.link(t / "merged.ply", t / "hard.ply")
    (t / "report.html").write_text("<p>of the user's</p>\n")
    (t / "checkpoint.db").write_text("of the user's\n")
    before = content(t)
    done = run_cli("register", f"t/{spelling}", "t/model.ply", "-o", "t", cwd=tmp_path)
    assert done.returncode == 2
    assert "is an input and would be replaced" in done.stderr
    assert content(t) == before


@pytest.mark.parametrize("name", ["report.html", "merged.ply", "run.json", "manifest.json"])
def test_foreign_files_are_not_replaced(original: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("of the user's\n")
    scans = [str(original / f"scan{j}.ply") for j in range(3)]
    started = time.monotonic()
    done = run_cli("register", *scans, "-o", str(tmp_path))
    assert done.returncode == 2
    assert name in done.stderr
    assert "move it away" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "of the user's\n"
    assert time.monotonic() - started < 60
    with pytest.raises(InputError, match=name):
        report.write_folder(coframe.load(original / "out"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_what_the_user_changed_is_not_replaced(work: Path) -> None:
    with (work / "out/report.html").open("a") as file:
        file.write("<p>my remarks</p>\n")
    before = content(work / "out")
    done = run_cli("register", "scan0.ply", "scan1.ply", "-o", "out", cwd=work)
    assert done.returncode == 2
    assert "out/report.html: has changed since coframe wrote it" in done.stderr
    assert content(work / "out") == before


def test_a_foreign_checkpoint_stays(original: Path, tmp_path: Path) -> None:
    (tmp_path / "checkpoint.db").write_text("of the user's\n")
    scans = [str(original / f"scan{j}.ply") for j in range(3)]
    done = run_cli("register", *scans, "-o", str(tmp_path))
    assert done.returncode == 2
    assert "checkpoint.db" in done.stderr
    assert (tmp_path / "checkpoint.db").read_text() == "of the user's\n"
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.db"]


def test_a_folder_of_scans_can_be_the_output(original: Path, tmp_path: Path) -> None:
    for j in range(3):
        shutil.copy(original / f"scan{j}.ply", tmp_path)
    shutil.copy(original / "start.json", tmp_path)
    command = ("register", ".", "--poses", "start.json", "-o", ".")
    assert run_cli(*command, cwd=tmp_path).returncode == 0
    assert run_cli("export", ".", "--to", "ply", cwd=tmp_path).returncode == 0
    again = run_cli(*command, cwd=tmp_path)
    assert again.returncode == 0
    own = "merged.ply, model.ply, points.ply, state.npz"
    assert again.stderr == f"coframe: .: left out {own}, written by coframe\n"
    assert coframe.load(tmp_path).names == ("scan0", "scan1", "scan2")
    with pytest.warns(UserWarning, match=f"left out {own}"):
        assert len(cloud_files.expand([tmp_path])) == 3
    with pytest.warns(UserWarning, match="left out merged.ply"):
        assert len(cloud_files.expand([tmp_path / "*.ply"])) == 3
    for name in ("manifest.json", ".coframe-exports"):  # as of release 0.1
        (tmp_path / name).unlink()
    with pytest.warns(UserWarning, match="left out merged.ply, model.ply, state.npz"):
        found = [path.name for path in cloud_files.expand([tmp_path])]
    assert found == ["points.ply", "scan0.ply", "scan1.ply", "scan2.ply"]


def test_aligned_copies_can_be_registered(work: Path) -> None:
    command = ("export", "out", "--to", "aligned", "-o", "aligned", "--inputs", ".")
    assert run_cli(*command, cwd=work).returncode == 0
    names = [path.name for path in cloud_files.expand([work / "aligned"])]
    assert names == ["scan0.ply", "scan1.ply", "scan2.ply"]


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has the lock of the folder `out`."""
    (tmp_path / "out").mkdir()
    program = (
        "from coframe.io.transaction import locked\nimport time\n"
        f"with locked({str(tmp_path / 'out')!r}):\n    print('locked', flush=True)\n"
        "    time.sleep(600)\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield process
        process.kill()


def test_a_second_run_is_refused_by_name(
    original: Path, tmp_path: Path, owner: subprocess.Popen[str]
) -> None:
    scans = [str(original / f"scan{j}.ply") for j in range(3)]
    done = run_cli("register", *scans, "-o", "out", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"process {owner.pid} on" in done.stderr
    with pytest.raises(InputError, match=f"process {owner.pid} on"):
        coframe.load(original / "out").save(tmp_path / "out")
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    coframe.load(original / "out").save(tmp_path / "out")  # The lock of the dead is free.
    assert not list((tmp_path / "out").glob(".*"))


def test_the_checkpoint_of_another_run_stays(
    original: Path, tmp_path: Path, owner: subprocess.Popen[str]
) -> None:
    with coframe.Checkpoint(tmp_path / "elsewhere.db") as checkpoint:
        checkpoint.begin({}, [], "")
        shutil.copy(tmp_path / "elsewhere.db", tmp_path / "out/checkpoint.db")
    before = content(tmp_path / "out")
    scans = [str(original / f"scan{j}.ply") for j in range(3)]
    assert run_cli("register", *scans, "-o", "out", cwd=tmp_path).returncode == 2
    assert content(tmp_path / "out") == before


def test_two_runs_with_checkpoints_in_one_folder(original: Path, tmp_path: Path) -> None:
    program = (
        "import coframe, time\n"
        f"with coframe.Checkpoint({str(tmp_path / 'checkpoint.db')!r}) as checkpoint:\n"
        "    checkpoint.begin({}, [], '')\n    print('begun', flush=True)\n    time.sleep(600)\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "begun\n"
        before = (tmp_path / "checkpoint.db").read_bytes()
        scans = [original / f"scan{j}.ply" for j in range(3)]
        with (
            pytest.raises(InputError, match=f"process {first.pid} on"),
            coframe.Checkpoint(tmp_path / "checkpoint.db") as second,
        ):
            coframe.register(scans, checkpoint=second)
        assert (tmp_path / "checkpoint.db").read_bytes() == before
        first.kill()


def test_threads_of_one_process_save_one_after_the_other(original: Path, tmp_path: Path) -> None:
    results = [coframe.load(original / "out").relative_to(j) for j in range(3)]
    threads = [
        threading.Thread(target=result.save, args=(tmp_path / "out",)) for result in results * 3
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = coframe.load(tmp_path / "out")
    assert any(same(found, result) for result in results)
    assert not list((tmp_path / "out").glob(".*"))


def test_readers_see_one_result_while_another_replaces_it(original: Path, tmp_path: Path) -> None:
    results = [coframe.load(original / "out").relative_to(j) for j in range(2)]
    results[0].save(tmp_path / "out")
    writer = os.fork()
    if writer == 0:
        end = time.monotonic() + 5
        while time.monotonic() < end:
            for result in results:
                result.save(tmp_path / "out")
                time.sleep(0.5)
        os._exit(0)
    seen = set()
    while os.waitpid(writer, os.WNOHANG) == (0, 0):
        found = coframe.load(tmp_path / "out")
        seen |= {j for j, result in enumerate(results) if same(found, result)}
        assert any(same(found, result) for result in results)
    assert seen == {0, 1}


def test_a_stranger_s_result_names_no_file_to_be_read(original: Path, tmp_path: Path) -> None:
    """A result that was made elsewhere may name any file of this machine as an input."""
    secret = tmp_path / "home/secret.ply"
    secret.parent.mkdir()
    shutil.copy(original / "scan0.ply", secret)
    received = tmp_path / "received"
    shutil.copytree(original / "out", received)
    about = json.loads((received / "manifest.json").read_text())
    state = dict(np.load(received / "state.npz"))
    state["files"] = np.array([str(secret)] * 3)
    np.savez(received / "state.npz", **state)
    about["files"]["state.npz"] = manifest.digest_of(received / "state.npz")
    (received / "manifest.json").write_text(json.dumps(about))
    done = run_cli("export", "received", "--to", "aligned", "-o", "copies", cwd=tmp_path)
    assert done.returncode == 2
    assert f"add --inputs {secret.parent}" in done.stderr
    assert not (tmp_path / "copies").exists()
    assert run_cli("report", "received", cwd=tmp_path).returncode == 0
    assert run_cli("extend", "received", original / "scan3.ply", cwd=tmp_path).returncode == 0
    done = run_cli("export", "received", "--to", "aligned", "-o", "copies", cwd=tmp_path)
    assert (done.returncode, (tmp_path / "copies").exists()) == (2, False)
    (received / "manifest.json").unlink()
    done = run_cli("export", "received", "--to", "aligned", "-o", "copies", cwd=tmp_path)
    assert (done.returncode, (tmp_path / "copies").exists()) == (2, False)


@pytest.mark.parametrize(
    "name", ["../../victim", "a/b", "..", ".bashrc", "c:x", "manifest.json", "\0"]
)
def test_a_stranger_s_manifest_reaches_no_file_outside(
    original: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "victim").write_text("precious\n")
    received = tmp_path / "some/received"
    shutil.copytree(original / "out", received)
    about = json.loads((received / "manifest.json").read_text())
    about["files"][name] = manifest.digest_of(tmp_path / "victim")
    (received / "manifest.json").write_text(json.dumps(about))
    with pytest.raises(InputError, match="is not a manifest of coframe"):
        coframe.load(original / "out").save(received)
    with pytest.raises(InputError, match="is not a manifest of coframe"):
        coframe.load(received)
    assert (tmp_path / "victim").read_text() == "precious\n"


def test_links_and_devices_in_a_received_folder_are_refused(original: Path, tmp_path: Path) -> None:
    received = tmp_path / "received"
    for name in ("state.npz", "merged.ply", "poses.json", "manifest.json", "run.json"):
        for kind in ("link", "fifo", "zero"):
            shutil.rmtree(received, ignore_errors=True)
            shutil.copytree(original / "out", received)
            (received / name).unlink()
            if kind == "link":
                shutil.copy(original / "out" / name, tmp_path / f"outside-{name}")
                os.symlink(tmp_path / f"outside-{name}", received / name)
            elif kind == "fifo":
                os.mkfifo(received / name)
            else:
                os.symlink("/dev/zero", received / name)
            if name == "run.json":
                done = run_cli("report", str(received))
                assert (done.returncode, done.stderr.count("\n")) == (2, 1)
            else:
                with pytest.raises(InputError):
                    coframe.load(received)


def test_a_planted_commit_reaches_nothing_outside(original: Path, tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim/a.txt").write_text("precious\n")
    received = tmp_path / "received"
    shutil.copytree(original / "out", received)
    os.symlink(tmp_path / "victim", received / transaction.COMMIT)
    before = content(tmp_path / "victim")
    coframe.load(received)
    (received / transaction.COMMIT).mkdir()
    shutil.copy(received / "manifest.json", received / transaction.COMMIT)
    os.symlink(tmp_path / "victim/a.txt", received / transaction.COMMIT / "poses.json")
    with pytest.raises(InputError, match="remove it"):
        coframe.load(received)
    assert content(tmp_path / "victim") == before


def test_the_manifest_names_all_files(original: Path) -> None:
    found = Manifest.read(original / "out")
    assert found is not None
    assert set(found.files) == FILES
    assert {path.name for path in (original / "out").iterdir()} == {*FILES, "manifest.json"}


def test_a_report_written_again_belongs_to_the_result(work: Path) -> None:
    report.write(coframe.load(work / "out"), work / "out/report.html")
    coframe.load(work / "out").relative_to(1).save(work / "out")
    assert not (work / "out/report.html").exists()  # It spoke of the result before.


def test_a_failed_run_leaves_no_folder_behind(tmp_path: Path) -> None:
    (tmp_path / "bad.ply").write_text("ply\n")
    assert run_cli("register", "bad.ply", "bad.ply", "-o", "new/out", cwd=tmp_path).returncode == 2
    assert [path.name for path in tmp_path.iterdir()] == ["bad.ply"]


def test_results_of_release_0_1_are_replaced(work: Path) -> None:
    (work / "out/manifest.json").unlink()
    shutil.copy(work / "out/merged.ply", work / "out/merged-0000.ply")  # of a cluster
    result = coframe.load(work / "out")
    report.write_folder(result, work / "out", page=False)
    names = {path.name for path in (work / "out").iterdir()}
    assert names == {*FILES, "manifest.json", "notes.txt"} - {"report.html"}


def test_points_larger_than_memory_replace_the_old_ones_last(work: Path) -> None:
    old = coframe.load(work / "out")
    scans = [work / f"scan{j}.ply" for j in range(3)]
    start = geometry.identity(3, 3)
    new = coframe.register(scans, start, memory="4GB", output=work / "out")
    assert same(coframe.load(work / "out"), old)
    new.save(work / "out")
    assert bits(coframe.load(work / "out").poses) == bits(new.poses)
    assert not list((work / "out").glob(".*"))
    new.relative_to(1).save(work / "out")  # These points are not under its poses.
    assert bits(coframe.load(work / "out").poses) == bits(new.relative_to(1).poses)

# SPDX-License-Identifier: MIT
"""The kept corpus: good files of every format, and every file that once made a reader fail, hang or
ask for too much.

They are read in processes of their own, as `make fuzz` does it: a native library that dies is a
failed test, not a dead run.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CORPUS = ROOT / "tests" / "corpus"
TARGETS = sorted(path.name for path in CORPUS.iterdir())
LIBRARIES = {
    "las": "laspy",
    "laz": "laspy",
    "e57": "pye57",
    "poses-e57": "pye57",
    "obj": "trimesh",
    "stl": "trimesh",
}
LIBRARIES |= {
    "off": "trimesh",
    "png": "PIL",
    "sequence-image": "PIL",
    "sequence-list": "PIL",
    "sequence-camera": "PIL",
}
SHARES = [TARGETS[i::2] for i in range(2)]


def replayed(targets: list[str], folder: Path) -> dict[str, list[str]]:
    """What was wrong with any file of these targets, by target."""
    files = {name: sorted(str(path) for path in (CORPUS / name).iterdir()) for name in targets}
    if "checkpoint" in files:  # one of this version
        make = "import sys, pathlib, fuzz.seeds; fuzz.seeds.checkpoint(pathlib.Path(sys.argv[1]))"
        subprocess.run([sys.executable, "-c", make, str(folder / "seed.db")], cwd=ROOT, check=True)
        files["checkpoint"].append(str(folder / "seed.db"))
    command = [sys.executable, "-m", "fuzz.worker", "replay", str(folder)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        input=json.dumps(files),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, (
        f"the process died while it read {(folder / 'now').read_text()}:\n{done.stderr[-2000:]}"
    )
    return json.loads(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
@pytest.mark.parametrize("targets", SHARES, ids=["even", "odd"])
def test_every_file_is_read_or_refused(targets: list[str], tmp_path: Path) -> None:
    for name in targets:
        if name in LIBRARIES:
            pytest.importorskip(LIBRARIES[name])
    outcome = replayed(targets, tmp_path)
    for name in targets:
        wrong, read = outcome[name]
        assert not wrong, f"{name}: {wrong}"
        assert [Path(file).name for file in read if Path(file).name.startswith("seed")], (
            f"{name}: no good file was read"
        )


def test_a_reader_that_fails_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)
    from fuzz import targets, worker

    def careless(path: Path) -> None:
        path.read_text(encoding="ascii")

    monkeypatch.setattr(worker.Cases, "limit", lambda self: None)
    monkeypatch.setitem(targets.TARGETS, "careless", targets.Target("a.txt", careless))
    cases = worker.Cases("careless", tmp_path)
    for data in (b"fine", b"\xff", b"\xfe"):
        cases.run(data)
    assert cases.done == 3
    # once for each place in the code
    assert len(list(tmp_path.glob("UnicodeDecodeError-*.txt"))) == 1

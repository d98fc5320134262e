# SPDX-License-Identifier: MIT
"""`kill -9` at random moments of a run, each followed by `--resume`: `python -m
benchmarks.interrupted FILES`.

Every result must have the bits of the run that nothing interrupted, and at no time may there be a
file under its final name that is not whole. The files are those of one run, so that all four are
compared: poses, model, merged points, state.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import coframe

RESULTS = ("poses.json", "merged.ply", "model.ply", "state.npz")


def command(files: list[Path], folder: Path, *options: str) -> list[str]:
    """`coframe register` into a folder."""
    return [
        sys.executable,
        "-m",
        "coframe",
        "register",
        *map(str, files),
        "-o",
        str(folder),
        "--quiet",
        "--no-report",
        *options,
    ]


def contents(folder: Path) -> dict[str, bytes]:
    """The result files that are there."""
    return {name: (folder / name).read_bytes() for name in RESULTS if (folder / name).exists()}


def main() -> None:
    """Print a line per kill."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    with tempfile.TemporaryDirectory() as scratch:
        # the same name for every run: poses.json has paths from here to the inputs
        whole = Path(scratch) / "out"
        subprocess.run(command(arguments.files, whole), check=True)
        begun = time.perf_counter()
        subprocess.run(command(arguments.files, whole), check=True)
        seconds = time.perf_counter() - begun
        expected = contents(whole)
        print(
            f"coframe {coframe.__version__}: {len(arguments.files)} clouds, a run takes"
            f" {seconds:.1f} s"
        )
        good = 0
        for _ in range(arguments.kills):
            folder = Path(scratch) / f"{rng.integers(10**9):09d}"
            process = subprocess.Popen(command(arguments.files, folder))
            moment = rng.uniform(0, seconds)
            time.sleep(moment)
            process.kill()
            process.wait()
            partial = [name for name, data in contents(folder).items() if data != expected[name]]
            begun = time.perf_counter()
            subprocess.run(command(arguments.files, folder, "--resume"), check=True)
            same = contents(folder) == expected and not (folder / "checkpoint.db").exists()
            good += same and not partial
            end = (
                f"{'same bits' if same else 'OTHER RESULT'}, damaged:"
                f" {', '.join(partial) or 'none'}"
            )
            print(
                f"killed after {moment:5.1f} s, resumed in {time.perf_counter() - begun:5.1f} s:"
                f" {end}"
            )
        print(f"{good} of {arguments.kills} came to the same result")
    sys.exit(good != arguments.kills)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: MIT
"""Clouds larger than memory: files are made, registered by the command line with a budget, and the
peak is measured.

The peak is that of the process itself and, beside it, of the process with those that it started,
sampled. A subset that fits is registered both ways, and the two results are compared byte by byte.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil

from coframe.data import simulate

BLOCK = 500_000  # points that are made at a time
JITTER = 1e-3  # of the extent: points are drawn around those of a smaller scan


def make(folder: Path, clouds: int, points: int, rng: np.random.Generator) -> list[Path]:
    """Scans of one body in binary PLY, float coordinates, each in a frame that is off by some
    degrees.
    """
    scene = simulate.scene(
        clouds, 20_000, degrees=360 * (clouds - 1) / clouds, noise_db=45.0, rng=rng
    )
    paths = []
    for j, cloud in enumerate(scene.clouds):
        paths.append(folder / f"scan{j:03d}.ply")
        with paths[-1].open("wb") as file:
            properties = "".join(f"property float {axis}\n" for axis in "xyz")
            file.write(
                "ply\nformat binary_little_endian 1.0\nelement vertex"
                f" {points}\n{properties}end_header\n".encode()
            )
            for begin in range(0, points, BLOCK):
                count = min(BLOCK, points - begin)
                block = cloud[rng.integers(0, len(cloud), count)] + rng.normal(
                    0, JITTER, (count, 3)
                )
                block.astype("<f4").tofile(file)
    return paths


def run(arguments: list[str]) -> dict[str, float]:
    """The command line as a process: seconds, its peak, and the peak of it and its children
    together, in MB.
    """
    began, peaks = time.perf_counter(), [0.0, 0.0]
    process = subprocess.Popen([sys.executable, "-m", "coframe", *arguments])
    ended = threading.Event()

    def watch() -> None:
        whole = psutil.Process(process.pid)
        while not ended.wait(0.02):
            with contextlib.suppress(psutil.Error):
                family = [
                    each.memory_info().rss for each in (whole, *whole.children(recursive=True))
                ]
                peaks[1] = max(peaks[1], sum(family) / 1e6)

    watcher = threading.Thread(target=watch)
    watcher.start()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    ended.set()
    watcher.join()
    if process.returncode not in (0, 1):
        raise SystemExit(process.returncode)
    peaks[0] = usage.ru_maxrss * 1024 / 1e6
    return {"seconds": time.perf_counter() - began, "peak_mb": peaks[0], "family_peak_mb": peaks[1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clouds", type=int, default=10)
    parser.add_argument("--points", type=int, default=5_000_000, help="of each cloud")
    parser.add_argument("--memory", default="1GB")
    parser.add_argument(
        "--subset",
        type=int,
        default=300_000,
        help="points of each cloud that are registered both ways",
    )
    parser.add_argument(
        "--scratch",
        type=Path,
        default=None,
        help="folder for the files; they are removed in the end",
    )
    parser.add_argument("--output", type=Path, default=Path("results/outofcore.json"))
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="outofcore-", dir=arguments.scratch))
    found: dict[str, object] = {
        "clouds": arguments.clouds,
        "points": arguments.points,
        "memory": arguments.memory,
    }
    try:
        small, large = folder / "small", folder / "large"
        small.mkdir()
        large.mkdir()
        make(small, arguments.clouds, arguments.subset, np.random.default_rng(0))
        common = ["--no-report"]
        found["small_whole"] = run(["register", str(small), "-o", str(folder / "whole"), *common])
        found["small_blocks"] = run(
            [
                "register",
                str(small),
                "-o",
                str(folder / "blocks"),
                "--memory",
                arguments.memory,
                *common,
            ]
        )
        for name in ("merged.ply", "model.ply"):
            assert (folder / "whole" / name).read_bytes() == (
                folder / "blocks" / name
            ).read_bytes(), name
        found["same_bytes"] = True
        print(json.dumps(found, indent=1), flush=True)
        make(large, arguments.clouds, arguments.points, np.random.default_rng(0))
        found["large"] = run(
            ["register", str(large), "-o", str(folder / "out"), "--memory", arguments.memory]
        )
        found["scratch_left"] = [
            path.name for path in (folder / "out").iterdir() if path.name.startswith(".")
        ]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(found, indent=1))
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

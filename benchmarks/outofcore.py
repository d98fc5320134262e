# SPDX-License-Identifier: MIT
"""Clouds larger than memory: files are made, registered by the command line with a budget, and what
it promised is compared with what it took.

For each format and number of points: the memory and time that the command line announces, the peak
of the process, that of the process with those that it started (sampled), and the time it took. A
subset that fits is registered both ways first, and the two results are compared byte by byte.

`python -m benchmarks.outofcore` makes 24 million points in LAZ, E57 and PLY, `--millions 24 100`
100 million as well (it needs 6 GB of disk). A busy machine makes times longer, not peaks larger.
"""

import argparse
import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from benchmarks import record
from coframe.align import cost
from coframe.data import simulate

BLOCK = 500_000  # points that are made at a time
JITTER = 1e-3  # of the extent: points are drawn around those of a smaller scan
COLUMNS = (
    "format",
    "points",
    "files [GB]",
    "promised: memory, time",
    "peak [MB]",
    "with its children",
    "time [s]",
    "of the promised time",
    "processor time [s]",
)


@dataclass(frozen=True)
class Taken:
    """What a run promised, and what it took."""

    promised_mb: float
    promised_seconds: float
    seconds: float
    processor_seconds: float
    peak_mb: float
    family_peak_mb: float


def make(folder: Path, form: str, clouds: int, points: int, rng: np.random.Generator) -> None:
    """Scans of one body, `points` each, every scan in a frame that is off by some degrees."""
    scene = simulate.scene(
        clouds, 20_000, degrees=360 * (clouds - 1) / clouds, noise_db=45.0, rng=rng
    )
    writers = {"ply": write_ply, "laz": write_laz, "e57": write_e57}
    for j, cloud in enumerate(scene.clouds):
        writers[form](folder / f"scan{j:03d}.{form}", cloud, points, rng)


def blocks(cloud: np.ndarray, points: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Points around those of a cloud, a block at a time."""
    counts = [min(BLOCK, points - begin) for begin in range(0, points, BLOCK)]
    return (
        cloud[rng.integers(0, len(cloud), count)] + rng.normal(0, JITTER, (count, 3))
        for count in counts
    )


def write_ply(path: Path, cloud: np.ndarray, points: int, rng: np.random.Generator) -> None:
    """Binary, float coordinates."""
    properties = "".join(f"property float {axis}\n" for axis in "xyz")
    head = (
        f"ply\nformat binary_little_endian 1.0\nelement vertex {points}\n{properties}end_header\n"
    )
    with path.open("wb") as file:
        file.write(head.encode())
        for block in blocks(cloud, points, rng):
            block.astype("<f4").tofile(file)


def write_laz(path: Path, cloud: np.ndarray, points: int, rng: np.random.Generator) -> None:
    """Compressed, with colours and intensity, in steps of a ten-thousandth."""
    import laspy

    header = laspy.LasHeader(point_format=7, version="1.4")
    header.scales = np.full(3, 1e-4)
    with laspy.open(path, "w", header=header) as file:
        for block in blocks(cloud, points, rng):
            part = laspy.ScaleAwarePointRecord.zeros(len(block), header=header)
            part.x, part.y, part.z = block.T
            part.intensity = rng.integers(0, 65536, len(block))
            for name in ("red", "green", "blue"):
                part[name] = rng.integers(0, 65536, len(block))
            file.write_points(part)


def write_e57(path: Path, cloud: np.ndarray, points: int, rng: np.random.Generator) -> None:
    """Double coordinates, colours and intensity; a whole scan at a time."""
    from coframe.io import clouds
    from coframe.io.scan import Scan

    whole = np.concatenate(list(blocks(cloud, points, rng)))
    colours = rng.integers(0, 256, whole.shape, dtype=np.uint8)
    clouds.write(path, Scan(whole, colours, intensity=rng.uniform(size=points), name=path.stem))


def run(arguments: list[str]) -> Taken:
    """The command line as a process, and what it printed of memory and time."""
    began, family = time.perf_counter(), 0.0
    process = psutil.Popen(
        [sys.executable, "-m", "coframe", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    ended = threading.Event()
    own = 0.0

    def watch() -> None:
        nonlocal own, family
        whole = psutil.Process(process.pid)
        while not ended.wait(0.02):
            with contextlib.suppress(psutil.Error, OSError, StopIteration):
                status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
                peak = next(line for line in status if line.startswith("VmHWM"))
                own = max(own, 1024 * int(peak.split()[1]) / 1e6)
                each = [x.memory_info().rss for x in (whole, *whole.children(recursive=True))]
                family = max(family, own, sum(each) / 1e6)

    watcher = threading.Thread(target=watch)
    watcher.start()
    before = time_of_children()
    said, _ = process.communicate()
    ended.set()
    watcher.join()
    if process.returncode not in (0, 1):
        raise SystemExit(said)
    promised = re.search(r"about (\d+) (s|min), at most (\d+) MB", said)
    return Taken(
        float(promised[3]) if promised else np.nan,
        float(promised[1]) * {"s": 1, "min": 60}[promised[2]] if promised else np.nan,
        time.perf_counter() - began,
        time_of_children() - before,
        own,
        family,
    )


def time_of_children() -> float:
    """Processor time of all processes that have ended [s]."""
    times = psutil.Process().cpu_times()
    return float(times.children_user + times.children_system)


def compare_ways(folder: Path, form: str, clouds: int, points: int, memory: str) -> None:
    """A set that fits: in memory and in blocks, the same bytes."""
    scans = folder / "small"
    scans.mkdir()
    make(scans, form, clouds, points, np.random.default_rng(0))
    run(["register", str(scans), "-o", str(folder / "whole"), "--no-report"])
    run(["register", str(scans), "-o", str(folder / "blocks"), "--no-report", "--memory", memory])
    for name in ("merged.ply", "model.ply"):
        one, other = ((folder / way / name).read_bytes() for way in ("whole", "blocks"))
        if one != other:
            raise SystemExit(f"{form}: {name} differs between the two ways")
    for name in ("small", "whole", "blocks"):
        shutil.rmtree(folder / name)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--formats", nargs="+", default=["laz", "e57", "ply"])
    parser.add_argument("--millions", nargs="+", type=float, default=[24], help="of points in all")
    parser.add_argument("--clouds", type=int, default=6)
    parser.add_argument("--memory", default="1GB")
    parser.add_argument(
        "--subset",
        type=int,
        default=700_000,
        help="points of each cloud that are registered both ways; 0: leave this out",
    )
    parser.add_argument(
        "--scratch", type=Path, help="folder for the files; they are removed in the end"
    )
    record.add_option(parser)
    arguments = parser.parse_args()
    budget = cost.bytes_of(arguments.memory) / 1e6
    rows, wrong = [], []
    for form in arguments.formats:
        with tempfile.TemporaryDirectory(prefix="outofcore-", dir=arguments.scratch) as name:
            if arguments.subset:
                compare_ways(Path(name), form, arguments.clouds, arguments.subset, arguments.memory)
        for millions in arguments.millions:
            with tempfile.TemporaryDirectory(prefix="outofcore-", dir=arguments.scratch) as name:
                scans, out = Path(name, "scans"), Path(name, "out")
                scans.mkdir()
                points = round(millions * 1e6 / arguments.clouds)
                make(scans, form, arguments.clouds, points, np.random.default_rng(0))
                size = sum(path.stat().st_size for path in scans.iterdir())
                taken = run(["register", str(scans), "-o", str(out), "--memory", arguments.memory])
                left = [path.name for path in out.iterdir() if path.name.startswith(".")]
            ratio = taken.seconds / taken.promised_seconds
            rows.append(
                [
                    form.upper(),
                    f"{millions:g} M",
                    f"{size / 1e9:.2f}",
                    f"{taken.promised_mb:.0f} MB, {taken.promised_seconds:.0f} s",
                    f"{taken.peak_mb:.0f}",
                    f"{taken.family_peak_mb:.0f}",
                    f"{taken.seconds:.0f}",
                    f"{ratio:.2f}",
                    f"{taken.processor_seconds:.0f}",
                ]
            )
            print(dict(zip(COLUMNS, rows[-1], strict=True)), flush=True)
            if taken.family_peak_mb > min(budget, taken.promised_mb):
                wrong.append(f"{form}, {millions:g} M: more memory than promised")
            if not 0.5 <= ratio <= 2:
                wrong.append(f"{form}, {millions:g} M: {ratio:.2f} times the promised time")
            if left:
                wrong.append(f"{form}, {millions:g} M: left behind {', '.join(left)}")
    record.save(
        "outofcore",
        f"{arguments.clouds} files, `--memory {arguments.memory}`.",
        COLUMNS,
        rows,
        folder=arguments.records,
    )
    raise SystemExit("; ".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main()

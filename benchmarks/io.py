# SPDX-License-Identifier: MIT
"""Reading speed, format by format: coframe, Open3D (`make peers`) and NumPy's `fromfile` of the
same bytes.

`python -m benchmarks.io` writes one cloud in every format to a temporary folder, reads each file a
few times with each reader, and prints megabytes of file per second of processor time at the best of
them: a busy machine does not matter, and threads save nothing. Files are in the system's cache, as
after a download or a scan: what is measured is parsing. coframe returns doubles and every column;
Open3D floats or doubles by format, points and colours.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import record
from benchmarks.record import ROOT

PEERS = ROOT / ".venv-peers" / "bin" / "python"
FORMATS = (
    "ascii.ply",
    "binary.ply",
    "ascii.pcd",
    "binary.pcd",
    "compressed.pcd",
    "xyz",
    "csv",
    "pts",
    "npy",
    "las",
    "laz",
    "e57",
    "bin",
)
OPEN3D = ("ascii.ply", "binary.ply", "ascii.pcd", "binary.pcd", "compressed.pcd", "xyz", "pts")


def write(folder: Path, points: int) -> dict[str, Path]:
    """One cloud with colours in every format; XYZ, NPY and KITTI hold coordinates alone."""
    from coframe.io import clouds as cloud_files
    from coframe.io.scan import Scan

    rng = np.random.default_rng(0)
    scan = Scan(
        rng.normal(size=(points, 3)).round(6),
        rng.integers(0, 256, (points, 3), dtype=np.uint8),
        name="cloud",
    )
    files = {form: folder / f"cloud.{form}" for form in FORMATS}
    for form in ("binary.ply", "binary.pcd", "csv", "las", "laz", "e57"):
        cloud_files.write(files[form], scan)
    bare = Scan(scan.points)
    for form in ("npy", "bin"):
        cloud_files.write(files[form], bare)
    rows = [f"{x:.6f} {y:.6f} {z:.6f}" for x, y, z in scan.points.tolist()]
    coloured = [
        f"{row} {r} {g} {b}" for row, (r, g, b) in zip(rows, scan.colours.tolist(), strict=True)
    ]  # type: ignore[union-attr]
    files["xyz"].write_text("\n".join(rows) + "\n")
    files["pts"].write_text(
        f"{points}\n" + "\n".join(f"{row} 0 {rgb}" for row, rgb in _split(coloured)) + "\n"
    )
    header = f"ply\nformat ascii 1.0\nelement vertex {points}\n" + "".join(
        f"property double {axis}\n" for axis in "xyz"
    )
    header += (
        "".join(f"property uchar {name}\n" for name in ("red", "green", "blue")) + "end_header\n"
    )
    files["ascii.ply"].write_text(header + "\n".join(coloured) + "\n")
    fields = "VERSION 0.7\nFIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nCOUNT 1 1 1\n"
    fields += f"WIDTH {points}\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS {points}\n"
    files["ascii.pcd"].write_text(f"{fields}DATA ascii\n" + "\n".join(rows) + "\n")
    import lzf

    plain = scan.points.astype("<f4").T.tobytes()
    packed = lzf.compress(plain, len(plain) * 33 // 32 + 64)
    lengths = np.array([len(packed), len(plain)], "<u4").tobytes()
    files["compressed.pcd"].write_bytes(
        f"{fields}DATA binary_compressed\n".encode() + lengths + packed
    )
    return files


def _split(rows: list[str]) -> list[tuple[str, str]]:
    parts = [row.split(" ", 3) for row in rows]
    return [(" ".join(part[:3]), part[3]) for part in parts]


def open3d_seconds(files: list[Path], rounds: int) -> tuple[str, dict[str, float]]:
    """Open3D's version and best time per file, measured by itself in its own environment; nothing
    where it does not run.
    """
    if not PEERS.exists():
        return "", {}
    program = (
        "import json, sys, time\nimport open3d as"
        " o3d\no3d.utility.set_verbosity_level(o3d.utility.VerbosityLevel.Error)\nbest = {}\nfor"
        " path in sys.argv[2:]:\n    for _ in range(int(sys.argv[1])):\n        began ="
        " time.process_time()\n        cloud = o3d.io.read_point_cloud(path)\n        seconds ="
        " time.process_time() - began\n        if len(cloud.points):\n            best[path] ="
        " min(seconds, best.get(path, seconds))\nprint(json.dumps([o3d.__version__, best]))\n"
    )
    done = subprocess.run(
        [PEERS, "-c", program, str(rounds), *map(str, files)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return "", {}
    found, best = json.loads(done.stdout.splitlines()[-1])
    return found, {Path(path).name: seconds for path, seconds in best.items()}


def best_of(rounds: int, action: object, *arguments: object) -> float:
    """The best time of several."""
    times = []
    for _ in range(rounds):
        began = time.process_time()
        action(*arguments)  # type: ignore[operator]
        times.append(time.process_time() - began)
    return min(times)


def main() -> None:
    """Write, read, print, save."""
    from coframe.io import clouds as cloud_files

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    record.add_option(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = write(Path(folder), options.points)
        cloud_files.read(files["xyz"])  # compiles
        peer, theirs = open3d_seconds([files[form] for form in OPEN3D], options.rounds)
        figures = []
        for form, path in files.items():
            ours = best_of(options.rounds, cloud_files.read_scan, path)
            plain = max(best_of(options.rounds, np.fromfile, path, np.uint8), 1e-6)
            other = theirs.get(path.name)
            megabytes = os.stat(path).st_size / 1e6
            figures.append(
                {
                    "format": form,
                    "megabytes": megabytes,
                    "coframe_s": ours,
                    "open3d_s": other,
                    "fromfile_s": plain,
                }
            )
    print(
        f"{options.points} points; MB/s, best of {options.rounds}; Open3D"
        f" {peer or 'absent (make peers)'}"
    )
    print(f"{'format':>15} {'MB':>7} {'coframe':>9} {'Open3D':>9} {'fromfile':>9} {'ratio':>7}")
    for row in figures:
        size, ours, other = row["megabytes"], row["coframe_s"], row["open3d_s"]
        peer_speed, ratio = (f"{size / other:.0f}", f"{other / ours:.1f}x") if other else ("-", "-")
        print(
            f"{row['format']:>15} {size:7.1f} {size / ours:9.0f} {peer_speed:>9}"
            f" {size / row['fromfile_s']:9.0f} {ratio:>7}"
        )
    rows = [
        [
            row["format"],
            *(f"{row['megabytes']:.0f}", speed(row, "coframe_s")),
            *(speed(row, "open3d_s"), speed(row, "fromfile_s")),
        ]
        for row in figures
    ]
    what = f"Megabytes of file per second of processor time; Open3D {peer or 'absent'}."
    columns = ["format", "MB", "coframe", "Open3D", "`numpy.fromfile`, the bytes alone"]
    record.save("io", what, columns, rows, folder=options.records)


def speed(row: dict[str, Any], seconds: str) -> str:
    """Megabytes per second, or nothing where the reader did not run."""
    return f"{row['megabytes'] / row[seconds]:,.0f}" if row[seconds] else ""


if __name__ == "__main__":
    main()

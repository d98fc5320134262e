# SPDX-License-Identifier: MIT
"""The published data sets of the paper: found on disk, or fetched from their publishers on request.

Sets lie under the folder that the variable COFRAME_DATA names, else under `~/.cache/coframe`.
Nothing is downloaded unless asked for. docs/data.md says what each set is, its terms and its
conventions.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from coframe.data import download
from coframe.errors import InputError
from coframe.io import clouds as cloud_files
from coframe.io import poses as pose_files
from coframe.types import Array

STANFORD = "https://graphics.stanford.edu/data/3Dscanrep/"
STANFORD_FILES = "https://graphics.stanford.edu/pub/3Dscanrep/"
STANFORD_TERMS = (
    "research use with acknowledgement of the Stanford Computer Graphics Laboratory; no commercial"
    " redistribution"
)
TUM = "https://cvg.cit.tum.de/data/datasets/rgbd-dataset"
TUM_FILES = "https://cvg.cit.tum.de/rgbd/dataset/"
TUM_TERMS = "CC BY 4.0; cite Sturm et al., IROS 2012"
INRIA = "https://team.inria.fr/perception/research/jrmpc/"
INRIA_FILE = "https://team.inria.fr/perception/files/2015/05/JRMPC_v0.9.4.zip"
INRIA_TERMS = (
    "demonstration data of the JRMPC authors (INRIA Perception); see the licence in the archive"
)


@dataclass(frozen=True)
class Dataset:
    """A set as it lies on disk."""

    name: str
    folder: Path
    names: tuple[str, ...]  # of the clouds, or of the frames of a sequence
    paths: tuple[Path, ...]  # their files
    # carry each cloud into the common frame; None where the publisher gives none
    poses: Float[Array, "M 4 4"] | None
    trajectory: Path | None  # of a sequence: the true path, for `coframe.trajectory.read_tum`
    source: str  # the publisher's page
    terms: str

    def clouds(self) -> list[Float[Array, "_ 3"]]:
        """Read the points, in the unit of the files."""
        return [cloud_files.read(path) for path in self.paths]


@dataclass(frozen=True)
class Entry:
    """What is known of a set before it is there."""

    about: str
    url: str  # of the archive or file
    unpacked: str  # the folder under the data folder that it is unpacked into
    marks: tuple[str, ...]  # patterns of the file that shows that the set is there, best first
    found: Callable[[Path], tuple[tuple[str, ...], tuple[Path, ...], Array | None, Path | None]]
    source: str
    terms: str


def root() -> Path:
    """The folder of all sets."""
    return Path(os.environ.get("COFRAME_DATA") or Path.home() / ".cache" / "coframe")


def present(name: str) -> bool:
    """Whether a set is on disk."""
    return _mark(name) is not None


def load(name: str, *, fetch: bool = False) -> Dataset:
    """A set by its name in `CATALOGUE`; with `fetch`, from its publisher where it is not on disk.

    >>> bunny = coframe.datasets.load("bunny")
    >>> result = coframe.register(bunny.clouds())
    """
    entry = _entry(name)
    if fetch and not present(name):
        download.fetched(entry.url, root() / entry.unpacked, record=root() / "checksums.json")
    mark = _mark(name)
    if mark is None:
        raise InputError(
            f"{name}: expected {entry.marks[0]} in {root()}, found none; get it from {entry.source}"
            f" and set COFRAME_DATA to the folder that holds it, or run: coframe datasets '{name}'"
        )
    names, paths, poses, path = entry.found(mark)
    return Dataset(name, mark.parent, names, paths, poses, path, entry.source, entry.terms)


def _entry(name: str) -> Entry:
    if name not in CATALOGUE:
        raise InputError(f"name: expected one of {', '.join(CATALOGUE)}, found {name!r}")
    return CATALOGUE[name]


def _mark(name: str) -> Path | None:
    for pattern in _entry(name).marks:
        found = sorted(root().glob(pattern)) if root().is_dir() else []
        if found:
            return found[0]
    return None


def _scans(conf: Path) -> tuple[tuple[str, ...], tuple[Path, ...], Array | None, Path | None]:
    poses = pose_files.read(conf)
    names = tuple(Path(name).stem for name in poses)
    return (
        names,
        tuple(conf.parent / f"{name}.ply" for name in names),
        np.array(list(poses.values())),
        None,
    )


def _model(path: Path) -> tuple[tuple[str, ...], tuple[Path, ...], Array | None, Path | None]:
    return (path.stem,), (path,), None, None


def _views(last: Path) -> tuple[tuple[str, ...], tuple[Path, ...], Array | None, Path | None]:
    stem = last.stem.rstrip("0123456789")
    paths = tuple(last.parent / f"{stem}{j}.txt" for j in range(1, int(last.stem[len(stem) :]) + 1))
    return tuple(path.stem for path in paths), paths, None, None


def _sequence(listing: Path) -> tuple[tuple[str, ...], tuple[Path, ...], Array | None, Path | None]:
    rows = [
        line.split()
        for line in listing.read_text().splitlines()
        if line.strip() and not line.startswith("#")
    ]
    paths = tuple(listing.parent / row[1] for row in rows)
    return tuple(row[0] for row in rows), paths, None, listing.parent / "groundtruth.txt"


CATALOGUE: dict[str, Entry] = {
    "bunny": Entry(
        "10 range scans, 30 to 40 thousand points each, metres",
        STANFORD_FILES + "bunny.tar.gz",
        "stanford",
        ("stanford/bunny/bun.conf", "stanford/bunny/data/bun.conf"),
        _scans,
        STANFORD,
        STANFORD_TERMS,
    ),
    "bunny model": Entry(
        "the bunny's mesh, 35,947 vertices",
        STANFORD_FILES + "bunny.tar.gz",
        "stanford",
        ("stanford/bunny/reconstruction/bun_zipper.ply",),
        _model,
        STANFORD,
        STANFORD_TERMS,
    ),
    "dragon": Entry(
        "15 range scans around a dragon that stands, every 24 degrees, metres",
        STANFORD_FILES + "dragon/dragon_stand.tar.gz",
        "stanford",
        ("stanford/dragon_stand/dragonStandRight.conf",),
        _scans,
        STANFORD,
        STANFORD_TERMS,
    ),
    "happy buddha": Entry(
        "15 range scans around a statue that stands, every 24 degrees, metres",
        STANFORD_FILES + "happy/happy_stand.tar.gz",
        "stanford",
        ("stanford/happy_stand/happyStandRight.conf",),
        _scans,
        STANFORD,
        STANFORD_TERMS,
    ),
    "armadillo": Entry(
        "a mesh: 172,974 vertices as published, or a smaller copy",
        STANFORD_FILES + "armadillo/Armadillo.ply.gz",
        "models",
        ("models/armadillo.off", "models/Armadillo.ply"),
        _model,
        STANFORD,
        STANFORD_TERMS,
    ),
    "lucy": Entry(
        "a mesh: 14 million vertices as published (300 MB), or a smaller copy",
        STANFORD + "lucy.tar.gz",
        "models",
        ("models/lucy_small.ply", "models/lucy.ply"),
        _model,
        STANFORD,
        STANFORD_TERMS,
    ),
    "tof": Entry(
        "EXBI: 10 time-of-flight views of a scene, 25,344 points each, x y z R G B",
        INRIA_FILE,
        "jrmpc",
        ("jrmpc_tof/view10.txt", "jrmpc/**/view10.txt"),
        _views,
        INRIA,
        INRIA_TERMS,
    ),
    "cut views": Entry(
        "the JRMPC authors' four simulated views of the bunny, partial, with noise and outliers",
        INRIA_FILE,
        "jrmpc",
        ("jrmpc_synthetic/cutView4.txt", "jrmpc/**/cutView4.txt"),
        _views,
        INRIA,
        INRIA_TERMS,
    ),
    "freiburg1 desk": Entry(
        "595 depth images of a hand-held Kinect over four desks",
        TUM_FILES + "freiburg1/rgbd_dataset_freiburg1_desk.tgz",
        "",
        ("tum_freiburg1_desk/depth.txt", "rgbd_dataset_freiburg1_desk/depth.txt"),
        _sequence,
        TUM,
        TUM_TERMS,
    ),
    "freiburg2 desk": Entry(
        "about 2,900 depth images of a hand-held Kinect around one desk",
        TUM_FILES + "freiburg2/rgbd_dataset_freiburg2_desk.tgz",
        "",
        ("tum_freiburg2_desk/depth.txt", "rgbd_dataset_freiburg2_desk/depth.txt"),
        _sequence,
        TUM,
        TUM_TERMS,
    ),
}


def bunny(*, fetch: bool = False) -> Dataset:
    """Ten range scans of the Stanford bunny, with poses."""
    return load("bunny", fetch=fetch)


def bunny_model(*, fetch: bool = False) -> Dataset:
    """The mesh of the Stanford bunny."""
    return load("bunny model", fetch=fetch)


def dragon(*, fetch: bool = False) -> Dataset:
    """Fifteen range scans of the Stanford dragon, with poses."""
    return load("dragon", fetch=fetch)


def buddha(*, fetch: bool = False) -> Dataset:
    """Fifteen range scans of the happy buddha, with poses."""
    return load("happy buddha", fetch=fetch)


def armadillo(*, fetch: bool = False) -> Dataset:
    """The mesh of the armadillo."""
    return load("armadillo", fetch=fetch)


def lucy(*, fetch: bool = False) -> Dataset:
    """The mesh of Lucy."""
    return load("lucy", fetch=fetch)


def tof(*, fetch: bool = False) -> Dataset:
    """Ten views of a time-of-flight camera, without poses."""
    return load("tof", fetch=fetch)


def cut_views(*, fetch: bool = False) -> Dataset:
    """The JRMPC authors' four simulated partial views of the bunny."""
    return load("cut views", fetch=fetch)


def freiburg1_desk(*, fetch: bool = False) -> Dataset:
    """The sequence fr1/desk of TUM RGB-D; `coframe.open_frames(its folder)` reads it."""
    return load("freiburg1 desk", fetch=fetch)


def freiburg2_desk(*, fetch: bool = False) -> Dataset:
    """The sequence fr2/desk of TUM RGB-D."""
    return load("freiburg2 desk", fetch=fetch)

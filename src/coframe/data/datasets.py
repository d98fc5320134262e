# SPDX-License-Identifier: MIT
"""The published data sets of the paper: found on disk, or fetched from their publishers on request.

Sets are under the folder that the variable COFRAME_DATA names, else under `~/.cache/coframe`.
Nothing is downloaded unless asked for. docs/data.md says what each set is, its terms and its
conventions.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float

from coframe.data import download
from coframe.errors import InputError
from coframe.io import clouds as cloud_files
from coframe.io import poses as pose_files
from coframe.types import Array

# Names of the clouds or frames, their files, their poses, the file of the true trajectory.
Files = tuple[tuple[str, ...], tuple[Path, ...], Array | None, Path | None]


@dataclass(frozen=True)
class Dataset:
    """A published set on disk.

    Attributes
    ----------
    name : str
    folder : Path
    names : tuple of str
        Of the clouds, or of the frames of a sequence.
    paths : tuple of Path
        Their files.
    poses : array (M, 4, 4) or None
        Carry each cloud into the common frame; None where the publisher gives none.
    trajectory : Path or None
        Of a sequence: the file of the true path, for `coframe.io.trajectory.read_tum`.
    source : str
        The publisher's page.
    terms : str
    """

    name: str
    folder: Path
    names: tuple[str, ...]
    paths: tuple[Path, ...]
    poses: Float[Array, "M 4 4"] | None
    trajectory: Path | None
    source: str
    terms: str

    def clouds(self) -> list[Float[Array, "_ 3"]]:
        """Read the points, in the unit of the files."""
        return [cloud_files.read(path) for path in self.paths]


@dataclass(frozen=True)
class Entry:
    """What is known of a set before it is on disk.

    Attributes
    ----------
    about : str
    url : str
        Of the archive or file.
    folder : str
        The folder under the data folder that it is unpacked into.
    marks : tuple of str
        Patterns of the file that shows that the set is on disk, best first.
    find_files : callable
        From that file to the files of the set.
    source : str
        The publisher's page.
    terms : str
    """

    about: str
    url: str
    folder: str
    marks: tuple[str, ...]
    find_files: Callable[[Path], Files]
    source: str
    terms: str


def root() -> Path:
    """The folder of all sets: COFRAME_DATA, else ~/.cache/coframe.

    Returns
    -------
    Path
    """
    return Path(os.environ.get("COFRAME_DATA") or Path.home() / ".cache" / "coframe")


def present(name: str) -> bool:
    """Whether a set is on disk.

    Parameters
    ----------
    name : str
        One of `CATALOGUE`.

    Returns
    -------
    bool
    """
    return _mark(name) is not None


def load(name: str, *, fetch: bool = False, url: str | None = None) -> Dataset:
    """Find a set on disk, or fetch it from its publisher.

    Parameters
    ----------
    name : str
        One of `CATALOGUE`.
    fetch : bool, optional
        Whether to download the set where it is not on disk.
    url : str, optional
        A copy to download instead of the publisher's archive.

    Returns
    -------
    Dataset

    Raises
    ------
    InputError
        If there is no such set, or it is not on disk and not to be fetched.

    Examples
    --------
    >>> bunny = coframe.datasets.load("bunny")
    >>> result = coframe.register(bunny.clouds())
    """
    entry = _entry(name)
    if fetch and not present(name):
        download.fetch(url or entry.url, root() / entry.folder, record=root() / "checksums.json")
    mark = _mark(name)
    if mark is None:
        raise InputError(
            f"{name}: expected {entry.marks[0]} in {root()}, found none; get it from {entry.source}"
            f" and set COFRAME_DATA to the folder that holds it, or run: coframe datasets '{name}'"
        )
    names, paths, poses, path = entry.find_files(mark)
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


def _scans(conf: Path) -> Files:
    poses = pose_files.read(conf)
    names = tuple(Path(name).stem for name in poses)
    paths = tuple(conf.parent / f"{name}.ply" for name in names)
    return names, paths, np.array(list(poses.values())), None


def _model(path: Path) -> Files:
    return (path.stem,), (path,), None, None


def _views(last: Path) -> Files:
    stem = last.stem.rstrip("0123456789")
    paths = tuple(last.parent / f"{stem}{j}.txt" for j in range(1, int(last.stem[len(stem) :]) + 1))
    return tuple(path.stem for path in paths), paths, None, None


def _sequence(listing: Path) -> Files:
    rows = [
        line.split()
        for line in listing.read_text().splitlines()
        if line.strip() and not line.startswith("#")
    ]
    paths = tuple(listing.parent / row[1] for row in rows)
    return tuple(row[0] for row in rows), paths, None, listing.parent / "groundtruth.txt"


STANFORD = "https://graphics.stanford.edu/data/3Dscanrep/"
STANFORD_FILES = "https://graphics.stanford.edu/pub/3Dscanrep/"
TUM_FILES = "https://cvg.cit.tum.de/rgbd/dataset/"
INRIA_FILE = "https://team.inria.fr/perception/files/2015/05/JRMPC_v0.9.4.zip"
_stanford = partial(
    Entry,
    source=STANFORD,
    terms=(
        "research use with acknowledgement of the Stanford Computer Graphics Laboratory; no"
        " commercial redistribution"
    ),
)
_inria = partial(
    Entry,
    url=INRIA_FILE,
    folder="jrmpc",
    find_files=_views,
    source="https://team.inria.fr/perception/research/jrmpc/",
    terms=(
        "demonstration data of the JRMPC authors (INRIA Perception); see the licence in the archive"
    ),
)
_tum = partial(
    Entry,
    folder="",
    find_files=_sequence,
    source="https://cvg.cit.tum.de/data/datasets/rgbd-dataset",
    terms="CC BY 4.0; cite Sturm et al., IROS 2012",
)
CATALOGUE: dict[str, Entry] = {
    "bunny": _stanford(
        "10 range scans, 30 to 40 thousand points each, metres",
        STANFORD_FILES + "bunny.tar.gz",
        "stanford",
        ("stanford/bunny/bun.conf", "stanford/bunny/data/bun.conf"),
        _scans,
    ),
    "bunny model": _stanford(
        "the bunny's mesh, 35,947 vertices",
        STANFORD_FILES + "bunny.tar.gz",
        "stanford",
        ("stanford/bunny/reconstruction/bun_zipper.ply",),
        _model,
    ),
    "dragon": _stanford(
        "15 range scans around a dragon that stands, every 24 degrees, metres",
        STANFORD_FILES + "dragon/dragon_stand.tar.gz",
        "stanford",
        ("stanford/dragon_stand/dragonStandRight.conf",),
        _scans,
    ),
    "happy buddha": _stanford(
        "15 range scans around a statue that stands, every 24 degrees, metres",
        STANFORD_FILES + "happy/happy_stand.tar.gz",
        "stanford",
        ("stanford/happy_stand/happyStandRight.conf",),
        _scans,
    ),
    "armadillo": _stanford(
        "a mesh: 172,974 vertices as published, or a smaller copy",
        STANFORD_FILES + "armadillo/Armadillo.ply.gz",
        "models",
        ("models/armadillo.off", "models/Armadillo.ply"),
        _model,
    ),
    "lucy": _stanford(
        "a mesh: 14 million vertices as published (300 MB), or a smaller copy",
        STANFORD + "lucy.tar.gz",
        "models",
        ("models/lucy_small.ply", "models/lucy.ply"),
        _model,
    ),
    "tof": _inria(
        "EXBI: 10 time-of-flight views of a scene, 25,344 points each, x y z R G B",
        marks=("jrmpc_tof/view10.txt", "jrmpc/**/view10.txt"),
    ),
    "cut views": _inria(
        "the JRMPC authors' four simulated views of the bunny, partial, with noise and outliers",
        marks=("jrmpc_synthetic/cutView4.txt", "jrmpc/**/cutView4.txt"),
    ),
    "freiburg1 desk": _tum(
        "595 depth images of a hand-held Kinect over four desks",
        TUM_FILES + "freiburg1/rgbd_dataset_freiburg1_desk.tgz",
        marks=("tum_freiburg1_desk/depth.txt", "rgbd_dataset_freiburg1_desk/depth.txt"),
    ),
    "freiburg2 desk": _tum(
        "about 2,900 depth images of a hand-held Kinect around one desk",
        TUM_FILES + "freiburg2/rgbd_dataset_freiburg2_desk.tgz",
        marks=("tum_freiburg2_desk/depth.txt", "rgbd_dataset_freiburg2_desk/depth.txt"),
    ),
}

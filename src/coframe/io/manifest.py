# SPDX-License-Identifier: MIT
"""Which files of a folder are coframe's own: manifest.json names them with their digests.

Every reader can tell whether files belong together, and every writer which files it may replace.
"""

import hashlib
import json
import os
import platform
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO

from coframe.errors import InputError
from coframe.io.files import as_json, regular, umask

StrPath = str | os.PathLike[str]

MANIFEST = "manifest.json"
EXPORTS = ".coframe-exports"
FORMAT = "coframe-manifest/1"
# How the hidden files and folders begin that are written before their names are known.
NEW = ".coframe-new-"
ADVICE = "or choose another folder"
# [format] Files that release 0.1, which wrote no manifest, put into a folder.
WITHOUT_MANIFEST = {
    "poses.json": ("merged.ply", "model.ply", "state.npz", "run.json", "report.html"),
    "track.json": ("trajectory.txt", "merged.ply", "model.ply", "state.npz", "report.html"),
    "comparison.json": ("comparison.html",),
}
# [limit] Bytes of a manifest, and of the end of a list of exports that is read.
LARGEST_MANIFEST, LARGEST_LIST = 1 << 26, 1 << 20
# [size] Bytes that are read at a time.
BLOCK = 1 << 20


@dataclass(frozen=True)
class Manifest:
    """What coframe wrote into a folder."""

    kind: str  # "registration", "track" or "comparison"
    files: Mapping[str, str]  # the digest of each
    run: str = field(default_factory=lambda: uuid.uuid4().hex)  # new with every change
    origin: str = ""  # which folder of which machine it was made in, if that is known
    version: str = field(default_factory=lambda: version("coframe"))

    @classmethod
    def read(cls, folder: StrPath) -> "Manifest | None":
        """The manifest of a folder; None where there is none."""
        path = Path(folder) / MANIFEST
        try:
            with open_regular(path) as file:
                content = file.read(LARGEST_MANIFEST + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            if len(content) > LARGEST_MANIFEST:
                raise ValueError("it is too long")
            about = json.loads(content)
            if about.pop("format") != FORMAT:
                raise ValueError("another format")
            manifest = cls(**about)
            texts = [manifest.kind, manifest.run, manifest.origin, manifest.version]
            texts += [*manifest.files.keys(), *manifest.files.values()]
            if not all(isinstance(text, str) for text in texts):
                raise ValueError("no texts")
            if not all(map(is_plain, manifest.files)):
                raise ValueError("names that are no names of files in a result folder")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise InputError(
                f"{path}: is not a manifest of coframe; move it away, or choose another folder"
            ) from None
        return manifest

    def write(self, folder: Path) -> None:
        """Write it, whole or not at all."""
        temporary = folder / f"{NEW}manifest"
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(as_json({"format": FORMAT} | asdict(self)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~umask())
        os.replace(temporary, folder / MANIFEST)

    def check(self, folder: StrPath, names: Iterable[str]) -> None:
        """Refuse files that are not those that coframe wrote together."""
        for name in names:
            path = Path(folder) / name
            if not os.path.lexists(path):
                raise InputError(
                    f"{path}: is missing, though {MANIFEST} names the result's files; restore it"
                    " from a copy, or run the command again"
                )
            if digest_of(path) != self.files.get(name):
                raise InputError(
                    f"{path}: has changed since coframe wrote it; restore it from a copy, or run"
                    " the command again"
                )


def digest_of(path: StrPath) -> str:
    """A digest of the content of a file."""
    found = hashlib.blake2b(digest_size=20)
    with open_regular(path) as file:
        while block := file.read(BLOCK):
            found.update(block)
    return found.hexdigest()


def open_regular(path: StrPath) -> BinaryIO:
    """Open a regular file for reading that is no link that leads out of its folder."""
    path = Path(path)
    if path.is_symlink() and not path.resolve().is_relative_to(path.parent.resolve()):
        raise InputError(
            f"{path}: is a link that leads out of its folder; replace it by the file itself"
        )
    return regular(path)


def own_files(folder: StrPath) -> set[str]:
    """The names of coframe's files in a folder that are no clouds to be registered."""
    return result_files(folder) | set(read_exports(folder).values()) - {""}


def read_exports(folder: StrPath) -> dict[str, str]:
    """The digests of what was exported from the result in a folder, with the names of the files
    that are in the folder itself.
    """
    found: dict[str, str] = {}
    with suppress(OSError, InputError), open_regular(Path(folder) / EXPORTS) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - LARGEST_LIST))
        for line in file.read(LARGEST_LIST).split(b"\n"):
            with suppress(ValueError, TypeError, RecursionError):  # A line may be cut.
                digest, name = json.loads(line)
                found[str(digest)] = str(name)
    return found


def result_files(folder: StrPath) -> set[str]:
    """The names of the files of a result in a folder, without what was exported from it."""
    try:
        return known_files(Path(folder), Manifest.read(folder))
    except InputError:
        return set()


def known_files(folder: Path, manifest: Manifest | None) -> set[str]:
    """The names of the files of the result in a folder, also of release 0.1."""
    if manifest is not None:
        return set(manifest.files)
    known: set[str] = set()
    for mark, others in WITHOUT_MANIFEST.items():
        with suppress(OSError, InputError), open_regular(folder / mark) as file:
            if f'"format": "coframe-{mark.removesuffix(".json")}/'.encode() in file.read(1 << 12):
                known |= {mark, *others}
                known |= {path.name for path in folder.glob("merged-[0-9][0-9][0-9][0-9].ply")}
    return known


def is_own(folder: Path, name: str, manifest: Manifest | None) -> bool:
    """Whether a file is as coframe wrote it; of release 0.1 only the name is known."""
    path = folder / name
    if not is_regular(path):
        return False
    if manifest is None:
        return name in known_files(folder, None)
    return manifest.files.get(name) == digest_of(path)


def is_regular(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def check_targets(
    folder: StrPath,
    names: Iterable[str],
    inputs: Iterable[StrPath] = (),
    may_replace: Callable[[str], bool] = lambda digest: False,
    advice: str = ADVICE,
) -> None:
    """Refuse to write over inputs, and over files that coframe did not write.

    Parameters
    ----------
    folder
        It need not exist.
    names
        The files to be written.
    inputs
        Files that are read.
    may_replace
        Whether a file with this digest may be replaced, though the manifest does not name it.
    advice
        What else to do than to move a file away.
    """
    folder = Path(folder)
    if not folder.is_dir():
        return
    manifest = Manifest.read(folder)
    own = known_files(folder, manifest)
    for name in sorted(own | set(names)):
        check_no_input(folder / name, inputs)
    for name in sorted(set(names)):
        path = folder / name
        if os.path.lexists(path) and not is_own(folder, name, manifest):
            if is_regular(path) and may_replace(digest_of(path)):
                continue
            why = "has changed since coframe wrote it" if name in own else "is not coframe's"
            raise InputError(f"{path}: {why} and would be replaced; move it away, {advice}")


def check_no_input(path: StrPath, inputs: Iterable[StrPath]) -> None:
    """Refuse to write over a file that is read, whatever it is called."""
    if not os.path.exists(path):
        return
    there = os.stat(path)
    for source in inputs:
        if os.path.exists(source) and os.path.samestat(os.stat(source), there):
            raise InputError(
                f"{path}: is an input and would be replaced; choose another folder or name"
            )


def is_from_elsewhere(folder: StrPath, manifest: Manifest | None) -> bool:
    """Whether a result was not made in this folder, as far as is known: what it says of other files
    may be a stranger's.
    """
    return manifest is None or manifest.origin != origin(folder)


def origin(folder: StrPath) -> str:
    """Which folder of which machine and user this is: a copy, or a stranger's, is another one."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    about = f"{platform.node()}\0{user}\0{os.stat(folder).st_ino}"
    return hashlib.blake2b(about.encode(), digest_size=20).hexdigest()


def _is_within(path: Path, folder: Path) -> bool:
    return path.is_relative_to(folder)


def is_plain(name: str) -> bool:
    """Whether a name is that of a visible file in the folder itself."""
    return (
        name == Path(name).name
        and not name.startswith(".")
        and name != MANIFEST
        and not set(name) & set("/\\:\0")
    )

# SPDX-License-Identifier: MIT
"""The clouds of a command: which take part, and which are meant by the names in options and files.

A name means the same cloud in all options and files (`io.naming`), whether it takes part or not.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from coframe.cli.app import complain
from coframe.cli.output import INSIDE, by_name, files_of

if TYPE_CHECKING:
    from coframe.input.prior import PosePrior
    from coframe.input.targets import Target
    from coframe.types import Poses


@dataclass(frozen=True)
class Chosen:
    """Clouds of files, some of which may be left out."""

    # Files in the order in which the user named them.
    given: tuple[Path, ...]
    # Names of all clouds, in the order of results, and the file of each.
    every: tuple[str, ...]
    files: tuple[Path, ...]
    # Numbers of the clouds that are left out.
    out: frozenset[int] = frozenset()

    @classmethod
    def of(cls, arguments: Iterable[Path], excluded: Sequence[str] = ()) -> "Chosen":
        """The clouds of the files that arguments name, without those of the names `excluded`."""
        from coframe.io import clouds

        given = files_of(arguments)
        names, files = clouds.named_files(sorted(given, key=by_name))
        found = cls(tuple(given), tuple(names), tuple(files))
        return replace(found, out=frozenset(found._number(name, "exclude") for name in excluded))

    @cached_property
    def kept(self) -> list[int]:
        """Numbers of the clouds that take part, among all."""
        return [j for j in range(len(self.every)) if j not in self.out]

    @property
    def names(self) -> list[str]:
        """Names of the clouds that take part."""
        return [self.every[j] for j in self.kept]

    @cached_property
    def paths(self) -> list[Path]:
        """Files that have clouds which take part."""
        return list(dict.fromkeys(self.files[j] for j in self.kept))

    @property
    def exclude(self) -> list[int]:
        """Numbers of the scans of these files that are left out."""
        inside = [j for j, file in enumerate(self.files) if file in set(self.paths)]
        return [i for i, j in enumerate(inside) if j in self.out]

    def indices(self, wanted: Sequence[str], option: str) -> list[int]:
        """The numbers of the clouds that an option names, among those that take part."""
        from coframe.errors import InputError

        found = [self._number(name, option) for name in wanted]
        for j in found:
            if j in self.out:
                raise InputError(
                    f"{option}: expected a cloud that takes part, found {self.every[j]}, which"
                    " --exclude leaves out; leave one of the two options out"
                )
        return [self.kept.index(j) for j in found]

    def priors(self, path: Path) -> "list[PosePrior]":
        """What a file knows of the clouds that take part."""
        from coframe.input.prior import read_priors

        found = read_priors(path, self.every)
        self._say_left_out(path, [prior.cloud for prior in found])
        return [
            replace(prior, cloud=self.kept.index(prior.cloud))
            for prior in found
            if prior.cloud not in self.out
        ]

    def targets(self, path: Path, sd: float | None) -> "list[Target]":
        """Where a file says that the clouds that take part see targets."""
        from coframe.input.targets import read_targets

        seen = [(each, self._number(str(each.scan), "targets")) for each in read_targets(path, sd)]
        self._say_left_out(path, [j for _, j in seen])
        return [replace(each, scan=self.every[j]) for each, j in seen if j not in self.out]

    def poses(self, given: Path | None, *, unknown: Sequence[int] = ()) -> "Poses | None":
        """Start poses of the clouds that take part, None for none.

        The identity for clouds whose pose is unknown. Poses without names are those of the files
        in the order given (`_listed`).
        """
        import numpy as np

        from coframe import geometry
        from coframe.io import poses

        if given is None:
            return None
        if str(given) == INSIDE:
            return self._inside(unknown)
        read = poses.read(given)
        again = {self.kept[j] for j in unknown}
        wanted = [j for j in self.kept if j not in again] or self.kept
        if poses.only_numbered(read, self.every):
            listed = self._listed()
            for some in (listed, self.kept, wanted):
                order = [self.every[j] for j in listed if j in some]
                if len(read) == len(order):
                    read = dict(zip(order, read.values(), strict=True))
                    self._say_order(given, order)
                    break
        found = poses.choose(given, read, [self.every[j] for j in wanted])
        whole = geometry.identity(len(self.kept), found.shape[-1] - 1)
        whole[np.searchsorted(self.kept, wanted)] = found
        return whole

    @property
    def hold_poses(self) -> bool:
        """Whether files have poses of their own scans, which say where these were taken.

        The viewpoint of a PCD is no such pose: its points may be in the common frame.
        """
        from coframe.io import clouds

        files = [path for path in self.paths if clouds.kind_of(path) in ("e57", "ptx")]
        return bool(files) and clouds.count_poses_inside(files) > 0

    def _inside(self, unknown: Sequence[int]) -> "Poses":
        """The poses inside the files; the identity for clouds that have none."""
        import numpy as np

        from coframe.errors import InputError
        from coframe.io import clouds

        inside = clouds.poses_inside(list(dict.fromkeys(self.files)))
        if not any(name in inside for name in self.names):
            raise InputError(
                f"poses: expected poses inside the files for --poses {INSIDE}, found none; name a"
                " file with poses, or leave it out"
            )
        again = {self.names[j] for j in unknown}
        missing = [name for name in self.names if name not in inside and name not in again]
        if len(missing) > 1:
            more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
            complain(
                f"no pose inside the files for {', '.join(missing[:5])}{more}: they start in their"
                " own coordinates; to match one with the others, add --rematch NAME"
            )
        return np.array([inside.get(name, np.eye(4)) for name in self.names])

    def _number(self, name: str, where: str) -> int:
        from coframe.io import naming

        return naming.find(self.every, name, where)

    def _listed(self) -> list[int]:
        """Numbers of all clouds in the order in which the user named the files.

        Where this is the order of a shell's pattern (scan1, scan10, scan2): scan2 before scan10,
        folder by folder.
        """
        from coframe.io.clouds import natural

        written = [str(path) for path in self.given]
        of_shell = written in (sorted(written), sorted(written, key=str.lower))
        key = (lambda path: natural(str(path))) if of_shell else self.given.index
        return sorted(range(len(self.files)), key=lambda j: key(self.files[j]))

    def _say_order(self, path: Path, order: Sequence[str]) -> None:
        """Say which cloud got which pose, where it is not the order of the result."""
        if list(order) != [name for name in self.every if name in set(order)]:
            more = f" and {len(order) - 10} more" if len(order) > 10 else ""
            complain(
                f"{path}: its poses have no names, and are taken for the files in the order given:"
                f" {', '.join(order[:10])}{more}"
            )

    def _say_left_out(self, path: Path, seen: Iterable[int]) -> None:
        """Say what a file knows in vain."""
        if names := [self.every[j] for j in dict.fromkeys(seen) if j in self.out]:
            complain(f"{path}: left out what it says of {', '.join(names)}, see --exclude")

# SPDX-License-Identifier: MIT
"""Which cloud is meant by a name that a user wrote, on the command line and in files."""

import re
from collections.abc import Sequence
from functools import lru_cache

from coframe.errors import InputError, nearest, visible

# [format] What the names of files end with that clouds are read from.
SUFFIX = re.compile(
    r"\.(ply|pcd|las|laz|e57|pts|ptx|vtk|xyz|txt|csv|asc|npy|npz|bin|obj|stl|off|png)$",
    flags=re.IGNORECASE,
)


@lru_cache(maxsize=4096)
def parts(name: str) -> tuple[str, ...]:
    """The folders and the last part of a name, without the suffix of a cloud's file.

    >>> parts("d1/scan.009.ply")
    ('d1', 'scan.009')
    """
    return tuple(
        part for part in SUFFIX.sub("", name.replace("\\", "/")).split("/") if part not in ("", ".")
    )


def candidates(names: Sequence[str], wanted: str) -> list[int]:
    """The numbers of the clouds that a name may mean.

    The cloud of that very name; else those whose name is the same without the suffix of a cloud's
    file and without folders in front that only one of the two has.
    """
    if wanted in names:
        return [list(names).index(wanted)]
    own = parts(wanted)
    return [j for j, name in enumerate(names) if own and _same(parts(name), own)]


def find(names: Sequence[str], wanted: str, where: str) -> int:
    """The number of the cloud that a name means; no name and several are refused.

    Parameters
    ----------
    names : sequence of str
        Of the clouds.
    wanted : str
        What the user wrote.
    where : str
        The option or file in which it is written, for messages.

    Returns
    -------
    int

    Raises
    ------
    InputError
        If no cloud has that name, or several have.

    Examples
    --------
    >>> find(["d1/scan", "d2/scan", "other"], "d2/scan.ply", "fixed")
    1
    """
    wanted = visible(wanted)
    found = candidates(names, wanted)
    if len(found) > 1:
        several = ", ".join(names[j] for j in found[:10])
        raise InputError(
            f"{where}: expected the name of one cloud, found {wanted!r}, which may be any"
            f" of {several}; write the whole name"
        )
    if not found:
        raise InputError(
            f"{where}: expected the name of a cloud, found {wanted!r};"
            f" {nearest(wanted, list(names))}"
        )
    return found[0]


def _same(a: tuple[str, ...], b: tuple[str, ...]) -> bool:
    """Whether one is the end of the other."""
    shared = min(len(a), len(b))
    return shared > 0 and a[-shared:] == b[-shared:]

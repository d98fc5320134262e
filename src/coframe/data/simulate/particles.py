# SPDX-License-Identifier: MIT
"""Particles of localisation microscopy: many copies of one structure, each seen in part.

A structure has binding sites. In each copy some sites carry a label; a label is localised a few
times, each time with its own precision; a few localisations belong to nothing.
"""

import numpy as np
from jaxtyping import Float

from coframe.data.simulate.records import Scans
from coframe.geometry import inverse, pose, random_rotation, transform
from coframe.types import Array, Points

# How many turns carry a structure onto itself: about the z axis, in the plane about the origin.
SYMMETRY: dict[str, int] = {"letters": 1, "ring": 8, "grid": 1, "pore": 8, "tetrapod": 1}

# Two letters of sites on a raster.
_LETTERS = (
    ".XXX.XXXX",
    "X....X...",
    "X....XXX.",
    "X....X...",
    ".XXX.X...",
)

# [chosen: precisions of a camera vary by about this] Standard deviation of the logarithm of the
# precision.
SPREAD = 0.25
# [chosen] Copies lie up to this many structure sizes from the origin of their cloud's frame.
SHIFT = 2.0
# [limit] Labelled sites of a copy at least, so that each copy has a pose.
FEWEST_SITES = 3


def sites(kind: str) -> Points:
    """Binding sites of a structure.

    Parameters
    ----------
    kind : str
        A key of `SYMMETRY`. In the plane: "letters", "ring" and "grid"; in space: "pore" and
        "tetrapod".

    Returns
    -------
    array (S, D)
        In nm; the structure's own frame.

    Examples
    --------
    >>> sites("ring").shape
    (16, 2)
    """
    if kind == "letters":
        rows, columns = np.nonzero(np.array([list(row) for row in _LETTERS]) == "X")
        return _centred(12.0 * np.stack([columns, -rows], 1))
    if kind == "ring":
        return _ring(radius=55.0, shift=0.0)
    if kind == "grid":
        rows, columns = np.divmod(np.arange(12), 4)
        marker = np.array([[-0.5, 2.5], [0.5, 2.5], [-0.5, 1.5]])
        return _centred(20.0 * np.concatenate([np.stack([columns, rows], 1), marker]))
    if kind == "pore":
        # Rings of different radii: turned upside down, the pore is not itself.
        lower = np.insert(_ring(radius=50.0, shift=0.0), 2, -25.0, axis=1)
        upper = np.insert(_ring(radius=58.0, shift=0.15), 2, 25.0, axis=1)
        return np.concatenate([lower, upper])
    if kind == "tetrapod":
        arms = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]) / np.sqrt(3)
        lengths = (30.0, 45.0, 60.0, 90.0)
        along = [np.arange(15.0, length + 1, 15.0) for length in lengths]
        return np.concatenate(
            [np.zeros((1, 3)), *(s[:, None] * arm for s, arm in zip(along, arms, strict=True))]
        )
    raise ValueError(f"no structure is called {kind!r}: choose one of {', '.join(SYMMETRY)}")


def particles(
    rng: np.random.Generator,
    *,
    kind: str,
    count: int = 50,
    labelled: float = 0.7,
    sigma: float = 3.0,
    outliers: float = 0.05,
    localisations: float = 3.0,
) -> Scans:
    """Simulate copies of a structure, each turned and shifted arbitrarily.

    Parameters
    ----------
    rng : numpy.random.Generator
    kind : str
        As in `sites`.
    count : int, optional
        Copies.
    labelled : float, optional
        Probability that a site carries a label. Copies of fewer than three labels are drawn anew.
    sigma : float, optional
        Typical precision of a localisation in nm; each has its own.
    outliers : float, optional
        Localisations that belong to no site, as a share of those that do, about.
    localisations : float, optional
        Of a label on average, geometrically distributed, at least one.

    Returns
    -------
    Scans
        A cloud a copy, in nm. Poses carry the copies onto the structure; for structures that are
        carried onto themselves by turns (see `SYMMETRY`, and the name of the scans), onto one of
        several that are equally right. `sigma` is the precision of each localisation.

    Examples
    --------
    >>> scans = particles(np.random.default_rng(0), kind="ring", count=5)
    >>> scans.name
    'ring, 8-fold'
    >>> len(scans.clouds)
    5
    """
    structure = sites(kind)
    D = structure.shape[1]
    size = float(np.ptp(structure, axis=0).max())
    clouds = []
    precisions = []
    strays = []
    poses = []
    for _ in range(count):
        has_label = rng.random(len(structure)) < labelled
        while has_label.sum() < FEWEST_SITES:
            has_label = rng.random(len(structure)) < labelled
        times = rng.geometric(1 / localisations, int(has_label.sum()))
        seen = np.repeat(structure[has_label], times, axis=0)
        stray = rng.uniform(-0.75 * size, 0.75 * size, (rng.poisson(outliers * len(seen)), D))
        precision = sigma * np.exp(SPREAD * rng.normal(size=len(seen) + len(stray)))
        seen = seen + precision[: len(seen), None] * rng.normal(size=seen.shape)
        motion = pose(random_rotation(rng, D), SHIFT * size * rng.uniform(-1, 1, D))
        order = rng.permutation(len(precision))
        clouds.append(transform(motion, np.concatenate([seen, stray]))[order])
        precisions.append(precision[order])
        strays.append((np.arange(len(precision)) >= len(seen))[order])
        poses.append(inverse(motion))
    fold = SYMMETRY[kind]
    return Scans(
        name=kind if fold == 1 else f"{kind}, {fold}-fold",
        clouds=clouds,
        poses=np.array(poses),
        sigma=precisions,
        outliers=strays,
        unit="nm",
    )


def _centred(points: Points) -> Points:
    return points - (points.min(0) + points.max(0)) / 2


def _ring(radius: float, shift: float) -> Float[Array, "16 2"]:
    """Eight pairs of sites; the outer one of a pair is ahead of the inner one."""
    angle = shift + np.arange(8) * np.pi / 4
    inner = (radius - 4) * np.stack([np.cos(angle), np.sin(angle)], 1)
    outer = (radius + 4) * np.stack([np.cos(angle + 0.2), np.sin(angle + 0.2)], 1)
    return np.concatenate([inner, outer])

# SPDX-License-Identifier: MIT
"""What `fuse` returns: poses, classes and verdicts of particles, and the structures."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from coframe.em.mixture import Mixture
from coframe.geometry import transform
from coframe.io.transaction import transaction
from coframe.types import Array, Points, Poses

# [format] The kind of a folder with a fusion, its files, and the format of fusion.json.
KIND = "fusion"
FILES = ("fusion.json", "fusion.npz")
FORMAT = "coframe-fusion/1"


@dataclass(frozen=True)
class Fit:
    """How well one particle fits the structure made of all others.

    Attributes
    ----------
    verdict : str
        "aligned", "weak" or "failed".
    reason : str
        Why, in a sentence.
    margin : float
        Log odds of its pose over the best pose that differs, apart from the symmetry found, and
        over the best pose in another class.
    misfit : float
        Robust standard deviations by which it fits worse than is typical in its class.
    """

    verdict: str
    reason: str
    margin: float
    misfit: float


@dataclass(frozen=True, eq=False)
class Structure:
    """The structure of one class of particles.

    Attributes
    ----------
    mixture : Mixture
        The sites: means, and covariances without the noise of the localisations.
    visibility : array (m, K)
        Share of the localisations of each particle of the class that belong to each site.
    resolution : float
        Length at which the Fourier correlation of two halves falls below 1/7 [unit].
    correlation : array (F, 2)
        Spatial frequency [1 / unit] and Fourier ring (shell) correlation.
    symmetry_found : int
        Highest order of a turn that carries the structure onto itself; 1 is none.
    symmetries : array (G, D+1, D+1)
        Motions that carry the structure onto itself. The pose of a particle is known up to these.
    """

    mixture: Mixture
    visibility: Float[Array, "m K"]
    resolution: float
    correlation: Float[Array, "F 2"]
    symmetry_found: int
    symmetries: Float[Array, "G D1 D1"]


@dataclass(frozen=True, eq=False, repr=False)
class Fusion:
    """Particles in one frame, and the structure.

    Attributes
    ----------
    poses : array (M, D+1, D+1)
        Pose j carries particle j into the common frame of its class, x = R v + t.
    verdicts : tuple of Fit
        One a particle.
    classes : array (M,)
        Class of each particle; class 0 is the largest.
    structures : tuple of Structure
        One a class. `mixture`, `visibility`, `resolution`, `correlation`, `symmetry_found` and
        `symmetries` are those of class 0.
    symmetry : int
        Order that was imposed; 1 is none.
    scores : array
        Score of each random start on particles left out; empty if a template was given.
    reproduced : float
        How well a start on other particles shows the structure: 1 as well as the best, 0 as badly
        as turned arbitrarily. 1 if a template was given.
    seed : int
    warnings : tuple of str
    """

    poses: Poses
    verdicts: tuple[Fit, ...]
    classes: Int[Array, " M"]
    structures: tuple[Structure, ...]
    symmetry: int
    scores: Float[Array, " S"]
    reproduced: float
    seed: int
    warnings: tuple[str, ...]

    @property
    def mixture(self) -> Mixture:
        return self.structures[0].mixture

    @property
    def visibility(self) -> Float[Array, "m K"]:
        return self.structures[0].visibility

    @property
    def resolution(self) -> float:
        return self.structures[0].resolution

    @property
    def correlation(self) -> Float[Array, "F 2"]:
        return self.structures[0].correlation

    @property
    def symmetry_found(self) -> int:
        return self.structures[0].symmetry_found

    @property
    def symmetries(self) -> Float[Array, "G D1 D1"]:
        return self.structures[0].symmetries

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {word}" for word, count in self.counts().items())
        classes = f" in {len(self.structures)} classes" if len(self.structures) > 1 else ""
        return (
            f"Fusion({len(self.poses)} particles{classes}: {counts}; {len(self.mixture.means)}"
            f" sites, resolution {self.resolution:.3g}, symmetry found {self.symmetry_found})"
        )

    def counts(self) -> dict[str, int]:
        """How many particles have each verdict."""
        return {
            word: sum(fit.verdict == word for fit in self.verdicts)
            for word in ("aligned", "weak", "failed")
        }

    def used(self, number: int = 0) -> Int[Array, " m"]:
        """Particles of a class that did not fail."""
        failed = np.array([fit.verdict == "failed" for fit in self.verdicts])
        return np.flatnonzero((self.classes == number) & ~failed)

    def merged(self, particles: Sequence[Array], number: int = 0) -> Points:
        """All localisations of particles of a class that did not fail, in the common frame."""
        return np.concatenate(
            [transform(self.poses[j], np.asarray(particles[j], float)) for j in self.used(number)]
            or [np.zeros((0, self.mixture.dimension))]
        )

    def record(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """The content of fusion.json: verdicts and figures, as plain values.

        Parameters
        ----------
        names
            Of the particles; default: their numbers.
        """
        names = names or [str(j) for j in range(len(self.poses))]
        return {
            "format": FORMAT,
            "particles": [
                {
                    "name": name,
                    "pose": T.tolist(),
                    "class": int(number),
                    "verdict": fit.verdict,
                    "reason": fit.reason,
                    # Null: no other pose was found.
                    "margin": fit.margin if np.isfinite(fit.margin) else None,
                    "misfit": fit.misfit,
                }
                for name, T, number, fit in zip(
                    names, self.poses, self.classes, self.verdicts, strict=True
                )
            ],
            "classes": [
                {
                    "particles": int((self.classes == number).sum()),
                    "used": len(self.used(number)),
                    "sites": len(structure.mixture.means),
                    "resolution": structure.resolution,
                    "symmetry_found": structure.symmetry_found,
                }
                for number, structure in enumerate(self.structures)
            ],
            "counts": self.counts(),
            "resolution": self.resolution,
            "symmetry": self.symmetry,
            "symmetry_found": self.symmetry_found,
            "reproduced": self.reproduced,
            "seed": self.seed,
            "warnings": list(self.warnings),
        }

    def write_files(self, folder: Path, names: Sequence[str] | None = None) -> list[str]:
        """Write `fusion.json` and `fusion.npz` into a folder that exists; returns their names."""
        content = json.dumps(self.record(names), indent=1)
        (folder / FILES[0]).write_text(content + "\n", encoding="utf-8")
        arrays: dict[str, Array] = {"poses": self.poses, "classes": self.classes}
        for number, structure in enumerate(self.structures):
            arrays |= {
                f"{key}_{number}": value
                for key, value in {
                    "sites": structure.mixture.means,
                    "covariances": structure.mixture.covariances,
                    "weights": structure.mixture.weights,
                    "visibility": structure.visibility,
                    "correlation": structure.correlation,
                    "symmetries": structure.symmetries,
                }.items()
            }
        np.savez_compressed(folder / FILES[1], allow_pickle=False, **arrays)
        return list(FILES)

    def save(self, folder: str | Path) -> None:
        """Write `fusion.json` (verdicts and figures) and `fusion.npz` (arrays) into a folder."""
        with transaction(folder, KIND) as new:
            self.write_files(new)

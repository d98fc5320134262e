# SPDX-License-Identifier: MIT
"""What a fit says of every point of a cloud, block by block, where the cloud is."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int, Shaped

from coframe.em.estep import Assignment, Cloud, Sweep
from coframe.em.mixture import Mixture
from coframe.input.normalise import Normalisation
from coframe.input.source import InMemory, Source
from coframe.io.files import write_rows
from coframe.result import merged
from coframe.result.merged import Target
from coframe.types import Array, Points, Pose


@dataclass(frozen=True)
class CloudView:
    """One cloud as a fit sees it, in internal coordinates."""

    frame: Normalisation
    pose: Pose
    priors: Float[Array, "1 K"] | None  # its own, p_jk
    first: int = 0  # what its first component is called in the result

    def classified(
        self, block: InMemory, mixture: Mixture | None, threads: int = 1
    ) -> tuple[Float[Array, " N"], Int[Array, " N"]]:
        """The outlier probability and the component of each point; without a mixture, all are
        outliers.
        """
        if mixture is None:
            return np.ones(len(block.points)), np.full(len(block.points), -1, np.int64)
        own = replace(mixture, visibility=self.priors)
        sweep = Sweep(
            [Cloud.of(self.frame.enter([block.points])[0], block.weights)], threads=threads
        )
        (found,) = sweep.assign(self.pose[None], own)
        return outlier_probability(found, mixture), np.where(
            found.label < 0, -1, found.label + self.first
        )


@dataclass(frozen=True)
class PointLabels:
    """What is known of the points of one cloud."""

    outlier_probability: Float[Array, " N"]
    labels: Int[Array, " N"]

    @classmethod
    def of(cls, assignment: Assignment, mixture: Mixture) -> "PointLabels":
        """What an E-step says of all points."""
        return cls(outlier_probability(assignment, mixture), assignment.label)


@dataclass(frozen=True)
class Some(PointLabels):
    """What is known of some points of one cloud, and which these are."""

    points: Points
    columns: Mapping[str, Shaped[Array, " N"]]


def label_points(
    source: Source, view: CloudView, mixture: Mixture | None, threads: int = 1
) -> PointLabels:
    """All points of a cloud."""
    each = [view.classified(block, mixture, threads) for block in source.blocks()]
    return PointLabels(
        np.concatenate([p for p, _ in each]), np.concatenate([label for _, label in each])
    )


def write_points(
    source: Source, view: CloudView, target: Target | None, mixture: Mixture | None, sample: int
) -> Some:
    """About `sample` points of a cloud, evenly out of all; all of them go to `target`, if any."""
    every = -(-source.shape[0] // sample)
    kept, first = [], 0
    with nullcontext() if target is None else target.opened(source.shape[0]) as file:
        for block in source.blocks():
            probability, label = view.classified(block, mixture)
            if target is not None and file is not None:
                rows = merged.rows(block, target.cloud, target.pose, probability, label, target.row)
                write_rows(file, rows)
            some = slice(-first % every, None, every)
            few = block.take(some)
            columns = {name: column.copy() for name, column in few.columns.items()}
            # Copies: a slice would keep the whole block.
            kept.append((few.points.copy(), columns, probability[some].copy(), label[some].copy()))
            first += len(block.points)
    points, tables, probabilities, labels = zip(*kept, strict=True)
    together = {name: np.concatenate([each[name] for each in tables]) for name in tables[0]}
    return Some(
        np.concatenate(probabilities), np.concatenate(labels), np.concatenate(points), together
    )


def outlier_probability(assignment: Assignment, mixture: Mixture) -> Float[Array, " N"]:
    """The posterior of the uniform class, per point."""
    if mixture.outlier_density == 0:  # far points have density 0 as well
        return np.zeros(len(assignment.density))
    return mixture.outlier_density / assignment.density

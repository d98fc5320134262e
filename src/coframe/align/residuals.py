# SPDX-License-Identifier: MIT
"""Residuals of targets as a result keeps them. Nothing heavy is imported: every result is read
this way.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincinv

# [limit] Standard deviations: a residual this large is chance once in 1000 (Baarda's w-test).
SUSPICIOUS = 3.29


@dataclass(frozen=True)
class TargetResidual:
    """Where a scan sees a target under its final pose, less where the target is.

    Attributes
    ----------
    name : str
        Of the target.
    scan : str
    role : str
        "control": against its known position; "check": the same, and it took no part in the
        adjustment; "tie": against the mean of all scans that see it.
    residual : tuple of D floats
        In the common frame [unit].
    sd : tuple of D floats
        Its standard deviation, from those of target, control point and poses [unit].
    """

    name: str
    scan: str
    role: str
    residual: tuple[float, ...]
    sd: tuple[float, ...]

    @property
    def distance(self) -> float:
        """Its length [unit]."""
        return float(np.linalg.norm(self.residual))

    @property
    def suspicious(self) -> bool:
        """Whether chance explains it once in 1000 only."""
        return bool((np.abs(self.residual) > SUSPICIOUS * np.array(self.sd)).any())


@dataclass(frozen=True)
class Adjustment:
    """Residuals of all targets.

    Attributes
    ----------
    residuals : tuple of TargetResidual
        Of each observation, target by target.
    chi_square : float
        Weighted sum of squared residuals of the adjustment, those of control points included.
    redundancy : float
        Its expected value, if the standard deviations are right.
    """

    residuals: tuple[TargetResidual, ...]
    chi_square: float
    redundancy: float

    @property
    def limits(self) -> tuple[float, float]:
        """The range of `chi_square` in 95 of 100 cases, if the standard deviations are right."""
        half = max(self.redundancy, np.finfo(float).tiny) / 2
        return 2 * float(gammaincinv(half, 0.025)), 2 * float(gammaincinv(half, 0.975))

    @property
    def consistent(self) -> bool:
        """Whether `chi_square` lies in that range."""
        low, high = self.limits
        return low <= self.chi_square <= high

    def rms(self, role: str) -> float | None:
        """Root mean square of the distances of a role, each target's mean over its scans [unit]."""
        names = sorted({each.name for each in self.residuals if each.role == role})
        means = [
            np.mean([each.residual for each in self.residuals if each.name == name], axis=0)
            for name in names
        ]
        if role == "tie":
            means = [np.array(each.residual) for each in self.residuals if each.role == role]
        return float(np.sqrt(np.mean([mean @ mean for mean in means]))) if means else None

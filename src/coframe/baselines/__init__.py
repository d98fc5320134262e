# SPDX-License-Identifier: MIT
"""The methods that the paper compares with, on the same clouds from the same starts and judged in
the same way.

Each is a function of clouds and start poses that returns a `Registration`; see docs/baselines.md.
"""

from coframe.baselines import averaged_icp, averaging, cpd, gmmreg, icp, overlap, simultaneous
from coframe.baselines.run import Method

METHODS: dict[str, Method] = {
    "icp": icp.icp,
    "icp sequential": icp.sequential_icp,
    "trimmed icp": icp.trimmed_icp,
    "cpd": cpd.cpd,
    "gmmreg": gmmreg.gmmreg,
    "simreg": simultaneous.simreg,
    "mv-icp": simultaneous.mv_icp,
    "maicp": averaged_icp.maicp,
    "matricp": averaged_icp.matricp,
    "pose graph": averaged_icp.pose_graph,
}

__all__ = [
    "METHODS",
    "Method",
    "averaged_icp",
    "averaging",
    "cpd",
    "gmmreg",
    "icp",
    "overlap",
    "simultaneous",
]

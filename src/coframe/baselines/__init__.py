# SPDX-License-Identifier: MIT
"""The methods that the paper compares with, on the same clouds from the same starts and judged in the same way.

Each is a function of clouds and start poses that returns a `Registration`; see docs/baselines.md.

>>> result = coframe.baselines.METHODS["trimmed icp"](clouds, start_poses)
"""

from coframe.baselines import averaging, cpd, gmmreg, icp, motion, network, simultaneous
from coframe.baselines.runs import Method

METHODS: dict[str, Method] = {
    "icp": icp.icp,
    "icp sequential": icp.sequential_icp,
    "trimmed icp": icp.trimmed_icp,
    "cpd": cpd.cpd,
    "gmmreg": gmmreg.gmmreg,
    "simreg": simultaneous.simreg,
    "mv-icp": simultaneous.mv_icp,
    "maicp": motion.maicp,
    "matricp": motion.matricp,
    "pose graph": motion.pose_graph,
}

__all__ = ["METHODS", "Method", "averaging", "cpd", "gmmreg", "icp", "motion", "network", "simultaneous"]

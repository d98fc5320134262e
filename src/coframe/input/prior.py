# SPDX-License-Identifier: MIT
"""What users know of poses beforehand."""

from dataclasses import dataclass

from jaxtyping import Float

from coframe.types import Array, Pose


@dataclass(frozen=True, eq=False)
class PosePrior:
    """A soft constraint on the pose of one cloud: from a turntable, GNSS, a tracked scanner.

    Attributes
    ----------
    cloud : int
        Index of the cloud.
    pose : (D+1, D+1) array
        Its expected pose.
    covariance : (P, P) array
        Of (omega, tau): the cloud is turned by omega [rad] about the point `about` in the common
        frame, and that point is shifted by tau [unit]. Infinite variances, all other entries of
        their rows and columns zero, say that nothing is known.
    about : (D,) array, optional
        The point, in the cloud's own coordinates. Default: the cloud's median, as for
        `Registration.pose_covariance`; zeros for a sensor that sits in its own origin.

    Examples
    --------
    >>> prior = coframe.PosePrior(2, result.poses[2], result.pose_covariance[2])
    >>> coframe.register(clouds, poses=start, priors=[prior])
    """

    cloud: int
    pose: Pose
    covariance: Float[Array, "P P"]
    about: Float[Array, " D"] | None = None

# SPDX-License-Identifier: MIT
"""What users know of poses beforehand."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.errors import InputError, one_line
from coframe.io import naming
from coframe.io.files import as_path, read_small
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


def read_priors(path: str | os.PathLike[str], names: Sequence[str]) -> list[PosePrior]:
    """Read what is known of poses from a JSON file.

    Its keys are names of clouds, its values `{"pose": 4x4, "turn": sd, "shift": sd}`: the expected
    pose, and standard deviations of the rotation [degrees] and of the position [unit of the
    clouds], each a number or one for each axis; null or left out: unknown. `"about": [x, y, z]` is
    the point that they are for; default: the cloud's median.

    Parameters
    ----------
    path : path
    names : sequence of str
        Of the clouds, in their order.

    Returns
    -------
    list of PosePrior

    Raises
    ------
    InputError
        If the file cannot be read, or names a cloud that is not there.

    Examples
    --------
    >>> coframe.register(files, priors=coframe.input.prior.read_priors("priors.json", names))
    """
    path = as_path(path)
    try:
        content = json.loads(read_small(path))
        if not isinstance(content, Mapping) or not content:
            raise ValueError("it is no object with the names of clouds")
        return [_prior(path, name, each, names) for name, each in content.items()]
    except OSError as error:
        raise InputError(
            f"{path}: expected a file with priors, found nothing that can be read"
            f" ({error.strerror}); check the path"
        ) from None
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f'{path}: expected JSON {{NAME: {{"pose": 4x4, "turn": degrees, "shift": length}}}},'
            f" found something else ({one_line(error)})"
        ) from None


def _prior(path: Any, name: str, content: Any, names: Sequence[str]) -> PosePrior:
    cloud = naming.find(names, name, str(path))
    if not isinstance(content, Mapping):
        raise ValueError(
            f'{name} has no object; {{"pose": 4x4, "turn": degrees, "shift": length}} says what is'
            " known of it; poses alone are for --poses"
        )
    unknown = set(content) - {"pose", "turn", "shift", "about"}
    if unknown:
        raise ValueError(f"{name} has {', '.join(sorted(map(str, unknown)))}")
    if "pose" not in content:
        raise ValueError(f"{name} has no pose")
    pose = np.array(content["pose"], float)
    if not geometry.is_rigid(pose):
        raise ValueError(f"the pose of {name} is not a rotation and a translation")
    D = len(pose) - 1
    turns = _deviations(name, "turn", content, geometry.degrees_of_freedom(D) - D)
    shifts = _deviations(name, "shift", content, D)
    if np.isinf(turns).all() and np.isinf(shifts).all():
        raise ValueError(
            f"{name} has neither turn nor shift, so that nothing would be known of it; give a"
            " standard deviation of one of them"
        )
    about = content.get("about")
    return PosePrior(
        cloud,
        pose,
        np.diag(np.concatenate([np.radians(turns), shifts]) ** 2),
        None if about is None else np.array(about, float),
    )


def _deviations(name: str, key: str, content: Mapping[str, Any], count: int) -> Array:
    value = content.get(key)
    given = value if isinstance(value, list) else [value] * count
    found = np.array([np.inf if each is None else each for each in given], float)
    if found.shape != (count,) or not (found > 0).all():
        raise ValueError(f"{key} of {name} is not one number above 0, or {count} of them")
    return found

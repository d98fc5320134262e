# SPDX-License-Identifier: MIT
"""Poses that files hold of their own scans (E57, PTX, PCD), as one more hypothesis about the start:
used where the scans agree with them.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coframe.align import planes
from coframe.align.evidence import (
    Agreement,
    agreement,
    at_odds,
    better,
    contradicting,
    share_of,
)
from coframe.errors import InputError
from coframe.geometry import identity
from coframe.io import clouds as cloud_files
from coframe.start.search import GIVEN, Start
from coframe.types import Poses

if TYPE_CHECKING:
    from coframe.api.problem import Problem

# [format] `Registration.start` where these poses were used.
INSIDE = "inside"


def read(files: Sequence[Path], exclude: Sequence[int] = ()) -> Poses | None:
    """The poses inside files, one a scan; None if more than one scan has none.

    A single scan without a pose, or with the identity, is the reference of the others. exclude:
    numbers of the scans of the files that are left out.
    """
    with suppress(InputError, OSError):
        every = cloud_files.poses_of_scans(list(dict.fromkeys(files)))
        found = [pose for j, pose in enumerate(every) if j not in exclude]
        if len(found) >= 2 and sum(pose is None for pose in found) <= 1:
            return np.array([np.eye(4) if pose is None else pose for pose in found])
    return None


def agreeing(problem: "Problem", files: Sequence[Path]) -> Poses | None:
    """The poses inside files, if nothing else is known and the scans agree with them.

    They agree if near these poses they share surface, no scan contradicts the others, and they do
    not contradict each other clearly more than as they lie. Contradictions as rare as chance makes
    them do not count: scans piled up around one instrument may have fewer still. The viewpoint of a
    PCD is often where a cloud was seen from, although its points are in the common frame: there,
    they must contradict each other clearly less.
    """
    options = problem.options
    unknown = problem.known.turntable is None and not problem.survey.points and not problem.bound
    if options.start != "auto" or not unknown or problem.given.dimension != 3:
        return None
    poses = read(problem.given.sources or files, problem.given.excluded)
    if poses is None or len(poses) != len(problem.given.names):
        return None
    with suppress(InputError):  # Poses that are no rigid motions, or lead too far away.
        near = _settled(problem, poses)
        if near.silent or near.isolated or at_odds(near) or contradicting(near):
            return None
        lie = _settled(problem, identity(len(poses), 3))
        doubtful = any(cloud_files.kind_of(path) == "pcd" for path in files)
        if doubtful:
            return poses if better(near.blocks, lie.blocks) else None
        share = share_of(near.blocks)
        rare = share is None or share.value <= 1 - problem.recipe.evidence.level
        if rare or not better(lie.blocks, near.blocks):
            return poses
    return None


def _settled(problem: "Problem", poses: Poses) -> Agreement:
    """How scans agree near some poses."""
    group = tuple(range(len(poses)))
    part = problem.part(Start((poses,), (group,), GIVEN, 0), group)
    run = part.run()
    surfaces = run.surfaces()
    near = planes.settle(
        surfaces, part.starts[0], run.recipe.gates[0], run.constraints, run.threads
    )
    return agreement(surfaces, near, run.recipe.evidence, run.threads)

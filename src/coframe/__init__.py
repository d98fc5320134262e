# SPDX-License-Identifier: MIT
"""Bring many overlapping point clouds into one common frame, jointly.

Pose j carries cloud j into the common frame: x = R v + t. Points are rows, variances are variances,
units are yours.

Names are imported when they are first used, so that `import coframe` costs next to nothing.
"""

TYPE_CHECKING = False  # As `typing` has it, which takes longer to import than all the rest.
if TYPE_CHECKING:
    from typing import Any

    from coframe import baselines, evaluate, paper, report
    from coframe.align.verdict import Verdict
    from coframe.api.extend import extend, forget
    from coframe.api.judge import judge
    from coframe.api.refine import refine
    from coframe.api.register import register
    from coframe.baselines.compare import Comparison, compare
    from coframe.compute.checkpoint import Checkpoint
    from coframe.data import datasets, simulate
    from coframe.em.loop import Iteration, Status
    from coframe.em.mixture import Mixture
    from coframe.em.moments import Moments
    from coframe.errors import InputError
    from coframe.evaluate import metrics
    from coframe.input.options import Options
    from coframe.input.prior import PosePrior
    from coframe.input.targets import ControlPoint, Target, read_control, read_targets
    from coframe.io.frames import open_frames
    from coframe.io.trajectory import Trajectory
    from coframe.paper.sequence import PublishedOptions, track_published
    from coframe.particles.fuse import fuse
    from coframe.particles.fusion import Fit, Fusion, Structure
    from coframe.result.quality import assess
    from coframe.result.registration import Registration, load
    from coframe.sequence.options import TrackOptions
    from coframe.sequence.track import Track, track

_HOMES = {
    "Checkpoint": "compute.checkpoint",
    "Comparison": "baselines.compare",
    "Fit": "particles.fusion",
    "Fusion": "particles.fusion",
    "ControlPoint": "input.targets",
    "InputError": "errors",
    "Iteration": "em.loop",
    "Mixture": "em.mixture",
    "Moments": "em.moments",
    "Options": "input.options",
    "PosePrior": "input.prior",
    "PublishedOptions": "paper.sequence",
    "Registration": "result.registration",
    "Status": "em.loop",
    "Structure": "particles.fusion",
    "Target": "input.targets",
    "TrackOptions": "sequence.options",
    "Track": "sequence.track",
    "Trajectory": "io.trajectory",
    "Verdict": "align.verdict",
    "assess": "result.quality",
    "baselines": "",
    "compare": "baselines.compare",
    "datasets": "data",
    "evaluate": "",
    "extend": "api.extend",
    "forget": "api.extend",
    "fuse": "particles.fuse",
    "judge": "api.judge",
    "load": "result.registration",
    "metrics": "evaluate",
    "open_frames": "io.frames",
    "paper": "",
    "read_control": "input.targets",
    "read_targets": "input.targets",
    "refine": "api.refine",
    "register": "api.register",
    "report": "",
    "simulate": "data",
    "track": "sequence.track",
    "track_published": "paper.sequence",
}
_MODULES = {"baselines", "datasets", "evaluate", "metrics", "paper", "report", "simulate"}

__all__ = [
    "Checkpoint",
    "Comparison",
    "ControlPoint",
    "Fit",
    "Fusion",
    "InputError",
    "Iteration",
    "Mixture",
    "Moments",
    "Options",
    "PosePrior",
    "PublishedOptions",
    "Registration",
    "Status",
    "Structure",
    "Target",
    "Track",
    "TrackOptions",
    "Trajectory",
    "Verdict",
    "assess",
    "baselines",
    "compare",
    "datasets",
    "evaluate",
    "extend",
    "forget",
    "fuse",
    "judge",
    "load",
    "metrics",
    "open_frames",
    "paper",
    "read_control",
    "read_targets",
    "refine",
    "register",
    "report",
    "simulate",
    "track",
    "track_published",
]


def __getattr__(name: str) -> "Any":
    if name == "__version__":
        from importlib.metadata import version

        return version("coframe")
    if name not in _HOMES:
        raise AttributeError(f"module 'coframe' has no attribute {name!r}")
    from importlib import import_module

    home = ".".join(part for part in ("coframe", _HOMES[name]) if part)
    if name in _MODULES:
        found = import_module(f"{home}.{name}")
    else:
        found = getattr(import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

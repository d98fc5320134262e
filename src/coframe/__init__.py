# SPDX-License-Identifier: MIT
"""Bring many overlapping point clouds into one common frame, jointly.

Pose j carries cloud j into the common frame: x = R v + t. Points are rows, variances are variances, units are yours.
"""

from importlib.metadata import version

from coframe import baselines, report, start
from coframe.data import simulate
from coframe.em import estep
from coframe.evaluate import metrics
from coframe import paper
from coframe.align.verdict import Verdict
from coframe.input.checks import InputError
from coframe.baselines.compare import Comparison, compare
from coframe.input.options import Options, PosePrior
from coframe.em.loop import Iteration, Status
from coframe.api.extend import extend, forget
from coframe.api.judge import hold
from coframe.compute.checkpoint import Journal
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.api.refine import refine
from coframe.api.register import register
from coframe.result.registration import Registration, load
from coframe.io.frames import open_frames
from coframe.paper.sequence import PublishedOptions, track_published
from coframe.sequence.tracker import Tracked, TrackOptions, track
from coframe.api.tidying import tidied
from coframe.io.trajectory import Trajectory

__version__ = version("coframe")

__all__ = [
    "Comparison",
    "InputError",
    "Iteration",
    "Journal",
    "Mixture",
    "Moments",
    "Options",
    "PosePrior",
    "PublishedOptions",
    "Registration",
    "Status",
    "TrackOptions",
    "Tracked",
    "Trajectory",
    "Verdict",
    "baselines",
    "compare",
    "estep",
    "extend",
    "forget",
    "hold",
    "load",
    "metrics",
    "open_frames",
    "paper",
    "refine",
    "register",
    "report",
    "simulate",
    "start",
    "tidied",
    "track",
    "track_published",
]

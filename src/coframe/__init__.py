# SPDX-License-Identifier: MIT
"""Bring many overlapping point clouds into one common frame, jointly.

Pose j carries cloud j into the common frame: x = R v + t. Points are rows, variances are variances, units are yours.
"""

from importlib.metadata import version

from coframe import baselines, estep, metrics, paper, report, simulate, start
from coframe.assess import Verdict
from coframe.clouds import InputError
from coframe.compare import Comparison, compare
from coframe.doors import Options, PosePrior
from coframe.em import Iteration, Status
from coframe.extend import extend, forget
from coframe.held import hold
from coframe.journal import Journal
from coframe.mixture import Mixture
from coframe.moments import Moments
from coframe.refining import refine
from coframe.registration import register
from coframe.result import Registration, load
from coframe.sequence.frames import open_frames
from coframe.sequence.published import PublishedOptions, track_published
from coframe.sequence.tracking import Tracked, TrackOptions, track
from coframe.tidying import tidied
from coframe.trajectory import Trajectory

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

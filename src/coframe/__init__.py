# SPDX-License-Identifier: MIT
"""Bring many overlapping point clouds into one common frame, jointly.

Pose j carries cloud j into the common frame: x = R v + t. Points are rows, variances are variances, units are yours.
"""

from importlib.metadata import version

from coframe import estep, metrics, paper, report, simulate, start
from coframe.assess import Verdict
from coframe.clouds import InputError
from coframe.doors import Options, PosePrior
from coframe.em import Iteration, Status
from coframe.extend import extend, forget, tidied
from coframe.journal import Journal
from coframe.mixture import Mixture
from coframe.moments import Moments
from coframe.registration import register
from coframe.result import Registration, load
from coframe.sequence.frames import open_frames
from coframe.sequence.tracking import TrackOptions, track
from coframe.trajectory import Trajectory

__version__ = version("coframe")

__all__ = [
    "InputError",
    "Iteration",
    "Journal",
    "Mixture",
    "Moments",
    "Options",
    "PosePrior",
    "Registration",
    "Status",
    "TrackOptions",
    "Trajectory",
    "Verdict",
    "estep",
    "extend",
    "forget",
    "load",
    "metrics",
    "open_frames",
    "paper",
    "register",
    "report",
    "simulate",
    "start",
    "tidied",
    "track",
]

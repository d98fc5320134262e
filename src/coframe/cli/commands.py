# SPDX-License-Identifier: MIT
"""The commands of the command line, in the order of its help."""

from coframe.cli import (
    compare,
    datasets,
    demo,
    doctor,
    evaluate,
    export,
    extend,
    fuse,
    register,
    report,
    track,
)
from coframe.cli.app import app, guarded

__all__ = ["app"]

for command in (
    register.register,
    report.report,
    export.export,
    extend.extend,
    evaluate.evaluate,
    compare.compare,
    track.track,
    fuse.fuse,
    demo.demo,
    doctor.doctor,
    datasets.datasets,
):
    app.command()(guarded(command))

# SPDX-License-Identifier: MIT
"""The command line, a file per command.

It parses, shows and writes; the work is done by the library, imported where needed.
"""

from coframe.cli import (
    compare,
    datasets,
    demo,
    doctor,
    evaluate,
    export,
    extend,
    register,
    report,
    track,
)
from coframe.cli.app import app, guarded

for command in (  # in the order of the help
    register.register,
    report.report,
    export.export,
    extend.extend,
    evaluate.evaluate,
    compare.compare,
    track.track,
    demo.demo,
    doctor.doctor,
    datasets.datasets,
):
    app.command()(guarded(command))


def main() -> None:
    """The `coframe` command.

    Exit codes: 0 done, 1 a cloud failed, 2 bad input or usage, 130 interrupted.
    """
    app(prog_name="coframe")

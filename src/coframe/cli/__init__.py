# SPDX-License-Identifier: MIT
"""The command line, a file per command. It parses, shows and writes; the work is done by the library, imported where needed."""

import sys

from coframe.cli import demo, doctor, export, extend, register, report, track
from coframe.cli.app import app

for command in (  # in the order of the help
    register.register,
    report.report,
    export.export,
    extend.extend,
    track.track,
    demo.demo,
    doctor.doctor,
):
    app.command()(command)


def main() -> None:
    """The `coframe` command. Exit codes: 0 done, 1 a cloud failed, 2 bad input or usage, 130 interrupted."""
    from coframe.clouds import InputError

    try:
        app()
    except InputError as error:
        print(f"coframe: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("coframe: interrupted", file=sys.stderr)
        sys.exit(130)

# SPDX-License-Identifier: MIT
"""Commands that are stopped at a file operation: a process that has coframe and faults.c loaded
forks a child for each, since a new interpreter would take seconds.
"""

import atexit
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fuzz.workspace import Outcome

SOURCE = Path(__file__).with_name("faults.c")
# [limit, s] A child that takes longer hangs.
LONGEST = 60.0


def missing() -> str:
    """Why faults cannot be made here; empty where they can."""
    if sys.platform != "linux":
        return "needs LD_PRELOAD and /proc as Linux has them"
    if shutil.which("cc") is None:
        return "needs a C compiler, cc, for faults.c"
    return ""


def compile_library(folder: Path) -> Path:
    library = folder / "faults.so"
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["cc", *flags, "-o", library, SOURCE, "-ldl"], check=True)
    return library


class Server:
    """The process that forks; `run` is a `workspace.Run` whose outcomes have operations."""

    def __init__(self, library: Path) -> None:
        self.scratch = tempfile.mkdtemp(prefix="coframe-faults-")
        environment = os.environ | {"LD_PRELOAD": str(library)}
        command = [sys.executable, __file__]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def close(self) -> None:
        self.process.communicate()
        shutil.rmtree(self.scratch)

    def warm_up(self, root: Path, command: tuple[str, ...]) -> None:
        """Run a command in the server itself: children find its modules and kernels loaded."""
        outcome = Outcome(**self._asked(root=str(root), command=command, fork=False))
        assert outcome.code == 0, outcome

    def run(
        self,
        root: Path,
        command: tuple[str, ...],
        *,
        at: int = 0,
        number: int = 0,
        torn: bool = False,
    ) -> Outcome:
        """Run a command in a child: at operation `at` it gets a signal, or, where that is 0, finds
        the disk full. `torn`: after half of the write that the operation is.
        """
        log = Path(self.scratch, "log")
        log.unlink(missing_ok=True)
        task = {"at": at, "number": number, "torn": torn, "log": str(log), "fork": True}
        answer = self._asked(root=str(root), command=command, **task)
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        return Outcome(**answer, operations=tuple(lines))

    def _asked(self, **task: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(task | {"scratch": self.scratch}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the server ended with {self.process.wait()}"
        return json.loads(line)


# In the server


def serve() -> None:
    """One task a line on stdin, one answer a line on stdout."""
    os.environ.pop("LD_PRELOAD")  # Processes that coframe starts are not counted.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What a command prints is no answer.
    for line in sys.stdin:
        task = json.loads(line)
        answers.write(json.dumps(_forked(task) if task["fork"] else _in_place(task)) + "\n")
        answers.flush()


def _in_place(task: dict[str, Any]) -> dict[str, Any]:
    os.chdir(task["root"])
    return {"code": _code(task["command"])}


def _forked(task: dict[str, Any]) -> dict[str, Any]:
    out, err = (Path(task["scratch"], name) for name in ("out", "err"))
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _be_child(task, out, err)
    status = None
    while status is None:
        ended, found = os.waitpid(child, os.WNOHANG)
        if ended:
            status = os.waitstatus_to_exitcode(found)
        elif time.monotonic() - began > LONGEST:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            status = 124  # as timeout(1) has it
        else:
            time.sleep(0.002)
    return {
        "code": status,
        "out": out.read_text(errors="replace"),
        "err": err.read_text(errors="replace"),
        "seconds": time.monotonic() - began,
    }


def _be_child(task: dict[str, Any], out: Path, err: Path) -> None:
    """Run the command as a process of its own would, and leave."""
    code = 70
    try:
        for number, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.chdir(task["root"])
        library = ctypes.CDLL(None)
        library.faults_arm(
            os.fsencode(task["root"]),
            ctypes.c_long(task["at"]),
            task["number"],
            int(task["torn"]),
            os.fsencode(task["log"]),
        )
        code = _code(task["command"])
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _code(command: list[str]) -> int:
    """The exit code of a command that runs in this process."""
    try:
        if command[0] == "python":
            exec(command[1], {"__name__": "__main__"})
        else:
            from coframe.cli import main

            sys.argv = ["coframe", *command]
            main()
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    except KeyboardInterrupt:  # as a shell sees Python end
        return 128 + signal.SIGINT
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    serve()

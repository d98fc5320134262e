# SPDX-License-Identifier: MIT
"""coframe works wherever it runs: forked, spawned, on threads, without HOME, from a read-only
install; and it answers signals at any moment.

In processes of their own.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import coframe
from coframe.data import simulate
from coframe.io import ply

pytest.importorskip("pwd", reason="needs forks, users and signals as POSIX has them")

# [s] A process that takes longer hangs: a registration of these clouds takes a second.
HANGS = 60

SMALL = """
import hashlib, multiprocessing, os, signal, sys, threading, time
from dataclasses import replace
import numpy as np
import coframe
from coframe.align.recipe import ALIGN
from coframe.data import simulate

scene = simulate.scene(3, 200, degrees=50.0, rng=np.random.default_rng(1))
options = coframe.Options(components=30, points=200, iterations=3, threads=2)
recipe = replace(ALIGN, reach_count=1, max_repetitions=1)

def digest():
    result = coframe.register(scene.clouds, scene.poses, options=options, recipe=recipe)
    return hashlib.sha256(result.poses.tobytes() + result.mixture.means.tobytes()).hexdigest()

def forked(work):
    \"\"\"What a forked child finds; it ends without a word to the parent's buffers.\"\"\"
    read, write = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(20)  # a child that hangs is ended
        os.write(write, work().encode())
        os._exit(0)
    os.close(write)
    with open(read) as pipe:
        found = pipe.read()
    os.waitpid(child, 0)
    return found or "the child hung or crashed"
"""


def run_script(code: str, **options: object) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", SMALL + code],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS,
        **options,  # type: ignore[call-overload]
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_a_forked_child_registers_to_the_same_bits() -> None:
    """Threads do not survive a fork: what remembers them must not, either."""
    here, there, again = run_script("print(digest(), forked(digest), digest())")
    assert here == there == again


def test_a_child_forked_while_another_thread_registers_registers_too() -> None:
    """The other thread has a lock and a BLAS limit that the child must not wait for."""
    here, before, there, after = run_script("""
from threadpoolctl import threadpool_info
def blas():
    return "".join(str(each["num_threads"]) for each in threadpool_info()
                   if each["user_api"] == "blas")
inside, leave = threading.Event(), threading.Event()
def on_iteration(step):
    inside.set()
    leave.wait()
other = threading.Thread(target=lambda: coframe.register(
    scene.clouds, options=options, recipe=recipe, on_iteration=on_iteration))
print(digest(), blas())
other.start()
inside.wait()
print(forked(lambda: f"{digest()} {blas()}"))
leave.set()
other.join()
""")
    assert (here, before) == (there, after)


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_pools_of_processes_register_to_the_same_bits(method: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        SMALL
        + f"""
def work(number):
    return digest()

if __name__ == "__main__":
    print(digest())
    with multiprocessing.get_context("{method}").Pool(1) as pool:
        print(pool.map_async(work, range(2)).get(timeout=40)[1])
"""
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=HANGS
    )
    assert (done.returncode, done.stderr) == (0, "")
    here, there = done.stdout.split()
    assert here == there


def test_threads_and_daemon_threads_register_to_the_same_bits() -> None:
    found = run_script("""
found = []
threads = [threading.Thread(target=lambda: found.append(digest()), daemon=n > 1) for n in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(digest(), *found)
""")
    assert len(found) == 5
    assert len(set(found)) == 1


# A folder without HOME, cache or permission to write

# A user that may read everything, since the interpreter may be in root's own folder, and may write
# nothing.
STRANGER = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--inh-caps=+dac_read_search",
    "--ambient-caps=+dac_read_search",
]


@pytest.fixture
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """coframe in a folder that its user may only read, beside a temporary folder for all."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        shutil.copytree(
            Path(coframe.__file__).parent,
            folder / "site" / "coframe",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        (folder / "tmp").mkdir()
        (folder / "tmp").chmod(0o1777)
        folders = [path for path in (folder / "site").rglob("*") if path.is_dir()]
        for each in folders:
            each.chmod(0o555)
        yield folder
        for each in folders:
            each.chmod(0o755)


def as_stranger(
    folder: Path, *command: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The command as a user without HOME or any other folder to keep things in."""
    user = STRANGER if os.getuid() == 0 else []
    if user and shutil.which("setpriv") is None:
        pytest.skip("root needs setpriv to become somebody else")
    kept = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder / "site")}
    nowhere = {"XDG_CACHE_HOME": "/proc/nowhere"} if not user else {}  # HOME is in the user list
    return subprocess.run(
        [*user, sys.executable, *command],
        env={**kept, **nowhere, "TMPDIR": str(folder / "tmp"), **environment},
        cwd=folder / "tmp",
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


KERNELS = "import coframe.em.kernels, coframe.em.joint_sparse_kernels, coframe.io.table_kernels"
USER = 65534 if os.getuid() == 0 else os.getuid()


def test_without_a_writable_cache_kernels_are_kept_in_a_temporary_folder(installed: Path) -> None:
    cache = installed / "tmp" / f"coframe-{USER}"
    first = as_stranger(installed, "-c", KERNELS)
    assert (first.returncode, first.stdout) == (0, "")
    assert first.stderr.count("\n") == 1
    assert f"{cache}" in first.stderr
    assert "NUMBA_CACHE_DIR" in first.stderr
    assert (cache.stat().st_uid, cache.stat().st_mode & 0o777) == (USER, 0o700)
    again = as_stranger(installed, "-c", KERNELS)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")  # once is enough


@pytest.mark.parametrize("planted", ["open", "link", "file", "stranger", "nowhere"])
def test_a_folder_that_others_could_write_to_is_not_trusted(installed: Path, planted: str) -> None:
    """Compiled code is run: a folder with a known name may have been made by somebody else."""
    cache = installed / "tmp" / f"coframe-{USER}"
    if planted == "open":
        cache.mkdir()
        os.chown(cache, USER, -1)
        cache.chmod(0o777)
    elif planted == "link":
        elsewhere = installed / "elsewhere"
        elsewhere.mkdir(mode=0o700)
        os.chown(elsewhere, USER, -1)
        cache.symlink_to(elsewhere)
    elif planted == "file":
        cache.touch()
    elif planted == "stranger":
        if os.getuid() != 0:
            pytest.skip("only root can make a folder of another user")
        cache.mkdir(mode=0o755)
    nowhere = "import tempfile; tempfile.tempdir = '/proc'\n" if planted == "nowhere" else ""
    done = as_stranger(installed, "-c", nowhere + KERNELS)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("coframe: compiled code is not kept")
    assert not cache.is_dir() or list(cache.iterdir()) == []


def test_a_cache_folder_of_the_users_choice_is_used(installed: Path) -> None:
    chosen = installed / "tmp" / "chosen"
    done = as_stranger(installed, "-c", KERNELS, NUMBA_CACHE_DIR=str(chosen))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert chosen.is_dir()
    assert not (installed / "tmp" / f"coframe-{USER}").exists()


@pytest.mark.slow
def test_a_registration_without_home_from_a_read_only_install(installed: Path) -> None:
    for j, cloud in enumerate(simulate.scene(2, 200, rng=np.random.default_rng(1)).clouds):
        ply.write(installed / f"scan{j}.ply", cloud)
    files = [str(installed / f"scan{j}.ply") for j in range(2)]
    done = as_stranger(installed, "-m", "coframe", "register", *files, "-o", "out", "--json")
    assert done.returncode in (0, 1), done.stderr
    assert len(json.loads(done.stdout)["clouds"]) == 2
    assert done.stderr.count("\n") == 1
    assert "compiled code" in done.stderr
    assert list((installed / "tmp" / f"coframe-{USER}").rglob("*.nbc"))


# Signals


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scans whose registration takes several seconds."""
    folder = tmp_path_factory.mktemp("scans")
    scene = simulate.scene(4, 3000, degrees=50.0, rng=np.random.default_rng(1))
    for j, cloud in enumerate(scene.clouds):
        ply.write(folder / f"scan{j}.ply", cloud)
    return folder


SCRIPT = "import sys\nfrom coframe.cli import main\nsys.exit(main())\n"
# [s] In which a signal is answered: a second, and more on a busy machine.
ANSWERED = 5.0


def start_cli(folder: Path, *arguments: str, script: str = SCRIPT) -> "subprocess.Popen[str]":
    """`coframe`, as its console script starts it, with SIGINT not ignored."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def answer(process: "subprocess.Popen[str]", number: int) -> tuple[int, str, str]:
    """The exit code and the words with which a process ends after a signal."""
    process.send_signal(number)
    try:
        out, errors = process.communicate(timeout=ANSWERED)
    finally:
        process.kill()
    return process.returncode, out, errors


def interrupt_after(folder: Path, delay: float, number: int, *arguments: str) -> tuple[int, str]:
    process = start_cli(folder, *arguments)
    time.sleep(delay)
    code, _, errors = answer(process, number)
    return code, errors


def assert_answered(code: int, errors: str, number: int) -> None:
    if code in (1, -number) and ", in main" not in errors:
        return  # The interpreter had not come to coframe's own code yet.
    assert code == 128 + number, errors
    assert errors.count("\n") == 1, errors
    assert errors.startswith("coframe: interrupted"), errors


@pytest.mark.parametrize(
    "delays",
    [np.arange(0, 0.6, 0.1), pytest.param(np.arange(0, 2.0, 0.05), marks=pytest.mark.slow)],
    ids=["few", "many"],
)
def test_ctrl_c_in_the_first_seconds_is_one_line(scans: Path, delays: np.ndarray) -> None:
    for delay in delays:
        command = ["register", "scan*.ply", "-o", "first", "--quiet"]
        code, errors = interrupt_after(scans, delay, signal.SIGINT, *command)
        assert_answered(code, errors, signal.SIGINT)


@pytest.mark.parametrize("method", [[], ["--method", "paper"]])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_one_line_before_and_without_a_checkpoint(
    scans: Path, method: list[str], number: int
) -> None:
    for delay in (0.2, 0.7, 1.5):
        command = ["register", "scan*.ply", "-o", "without", "--quiet", *method]
        code, errors = interrupt_after(scans, delay, number, *command)
        assert_answered(code, errors, number)


# A command whose threads do not look at anything for a minute.
DEAF = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
import coframe
def register(*arguments, checkpoint, **options):
    checkpoint.begin({}, [], "")
    checkpoint.keep("done", {"value": __import__("numpy").arange(3)})
    with ThreadPoolExecutor(1) as pool:
        task = pool.submit(time.sleep, 60)
        print("deaf", flush=True)
        task.result()
coframe.register = register
from coframe.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_answered_while_threads_are_busy(scans: Path, number: int) -> None:
    """What is done is in the checkpoint even then."""
    output = f"deaf{number}"
    process = start_cli(scans, "register", "scan*.ply", "-o", output, "--json", script=DEAF)
    assert process.stdout is not None
    assert process.stdout.readline() == "deaf\n"
    began = time.monotonic()
    code, out, errors = answer(process, number)
    assert time.monotonic() - began < ANSWERED
    assert code == 128 + number
    assert errors.count("\n") == 1
    assert errors.startswith("coframe: interrupted; go on with: coframe register ")
    assert json.loads(out) == {"error": "interrupted", "exit_code": code}
    with coframe.Checkpoint(scans / output / "checkpoint.db", resume=True) as checkpoint:
        assert checkpoint.kept("done")["value"].tolist() == [0, 1, 2]


def test_ctrl_c_in_python_ends_every_phase_at_its_next_iteration() -> None:
    """Phases run in threads, which the exception of the main thread does not reach."""
    (after,) = run_script("""
signal.signal(signal.SIGINT, signal.default_int_handler)
seen = []
def on_iteration(step):
    seen.append(step)
    if len(seen) == 5:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)
try:
    coframe.register(scene.clouds, scene.poses, options=options, on_iteration=on_iteration)
except KeyboardInterrupt:
    print(len(seen) - 5)
""")
    assert int(after) <= 8


def test_a_signal_for_a_forked_child_does_not_end_its_parent() -> None:
    program = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from coframe.cli import signals\n"
        "signals.watch()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    signals.watch()\n"
        "    time.sleep(60)\n"
        "time.sleep(0.5)\n"
        "os.kill(child, signal.SIGINT)\n"
        "code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
        "time.sleep(1)\n"
        "print(code, 'alive')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "130 alive\n")


def test_a_signal_before_a_command_begins_is_one_line() -> None:
    """Between the handler of a command and its own code, typer gets the signal and is silent."""
    program = (
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import coframe.cli.commands\n"
        "from coframe.cli import main, signals\n"
        "sys.argv = ['coframe', 'doctor']\n"
        "real = signal.signal\n"
        "def install(number, handler):\n"
        "    before = real(number, handler)\n"
        "    if handler is signals.interrupt and number == signal.SIGINT:\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "    return before\n"
        "signal.signal = install\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "coframe: interrupted\n")

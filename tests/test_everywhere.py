# SPDX-License-Identifier: MIT
"""coframe works wherever it runs: forked, spawned, on threads, without HOME, from a read-only
install; and it answers signals at any moment.

In processes of their own.
"""

import subprocess
import sys
from pathlib import Path

import pytest

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
recipe = replace(ALIGN, reaches=(None, 0.05), max_repetitions=1, repeat_iterations=2)

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
    """The other thread has a lock, a BLAS limit and a matcher that the child must not wait for."""
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


@pytest.mark.parametrize("method", ["fork", "spawn"])
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

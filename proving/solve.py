# SPDX-License-Identifier: MIT
"""Solve one problem with the coframe of this interpreter:

    python solve.py PROBLEM.npz ANSWER.npz [SECONDS]

Stands alone, so that any release of coframe can be run: reads a saved `Problem`, calls `register`
or `track` with default options on one thread, and writes an `Answer` (see problem.py for both).
The system ends the process when it has used so many seconds of a processor.
"""

import json
import resource
import sys
import time
import warnings
from pathlib import Path

import numpy as np

import coframe


def solve(about, stored):
    """Poses, verdicts, groups, warnings and covariance, as `Answer` has them."""
    clouds = [stored[f"clouds.{j}"] for j in range(about["lists"]["clouds"])]
    if about["rest"]["kind"] == "track":
        path = coframe.track(frames(clouds), options=coframe.TrackOptions(threads=1))
        lost = [bool(each) for each in path.lost]
        found = [j for j, each in enumerate(lost) if not each]
        return {
            "poses": path.poses,
            "verdicts": ["failed" if each else "aligned" for each in lost],
            "groups": [found, *([j] for j, each in enumerate(lost) if each)],
            "warnings": [],
            "covariance": None,
        }
    start = stored["start"] if "start" in stored.files else None
    options = coframe.Options(threads=1)
    result = coframe.register(clouds, start, options=options)
    return {
        "poses": result.poses,
        "verdicts": [each.verdict for each in result.verdicts],
        "groups": [list(map(int, group)) for group in result.groups],
        "warnings": list(result.warnings),
        "covariance": result.pose_covariance,
    }


def frames(clouds):
    """Release 0.1 does not take arrays, but has a function that makes frames of them."""
    try:
        from coframe.sequence.frames import from_arrays
    except ImportError:
        return clouds
    return from_arrays(clouds)


def processor_time():
    """Seconds of this process and of those that it started and that have ended."""
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in both)


def largest_memory():
    """Bytes. On Linux `ru_maxrss` would count what the process was forked from, too."""
    status = Path("/proc/self/status")
    if status.exists():
        rows = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(rows["VmHWM"].split()[0]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024)


def main(problem, answer, limit="0"):
    if int(limit):
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 5))
    warnings.simplefilter("ignore")
    coframe.register, coframe.track = coframe.register, coframe.track  # import what they need now
    with np.load(problem, allow_pickle=False) as stored:
        about = json.loads(str(stored["json"]))
        began, cpu = time.perf_counter(), processor_time()
        try:
            found = {"error": None, **solve(about, stored)}
        except Exception as problem:
            text = f"{type(problem).__name__}: {problem}"
            found = {"error": text, "poses": None, "verdicts": [], "groups": [], "warnings": []}
            found["covariance"] = None
        found["seconds"] = time.perf_counter() - began
        found["cpu"] = processor_time() - cpu
    found["memory"] = largest_memory()
    arrays = {k: found.pop(k) for k in ("poses", "covariance") if found[k] is not None}
    rest = json.dumps({"rest": {"poses": None} | found, "lists": {}})
    with open(answer, "wb") as file:
        np.savez(file, json=np.array(rest), **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])

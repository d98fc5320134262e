# SPDX-License-Identifier: MIT
"""One process that fuzzes one target. It may die: what it was reading stays in its folder, and the
parent looks at it.

`python -m fuzz.worker TARGET FOLDER RUNS SEED SECONDS ENGINE`; or `python -m fuzz.worker replay
FOLDER`, with the files of each target as JSON on stdin and, on stdout, what was wrong and which
were read.
"""

import contextlib
import hashlib
import json
import mmap
import os
import random
import resource
import signal
import struct
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

# [limit, s] Processor time of a case, so that a busy machine makes no findings.
HANG = 10.0
# [limit, s] Time of a case by the clock.
ASLEEP = 60.0
# [limit, bytes] Memory that a case may ask for beyond what the process has; files are smaller than
# 64 KB.
MEMORY = 1 << 30
CORPUS = Path(__file__).resolve().parents[1] / "tests" / "corpus"


class Cases:
    """Runs cases one after the other and remembers what was wrong with any."""

    def __init__(self, name: str, folder: Path) -> None:
        from fuzz.targets import TARGETS

        self.target, self.folder = TARGETS[name], folder
        self.input = folder / "input"
        self.input.mkdir(parents=True, exist_ok=True)
        self.target.prepare(self.input)
        self.path = self.input / self.target.name
        (folder / "count").write_bytes(b"\0" * 16)
        with (folder / "count").open("r+b") as file:
            self.count = mmap.mmap(file.fileno(), 16)
        self.done = self.refused = 0
        self.seen: set[str] = set()
        warnings.simplefilter("ignore")
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        self.warm_up(name)
        self.limit()

    def limit(self) -> None:
        """Bound the memory of the process."""
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        virtual = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (virtual + MEMORY, resource.RLIM_INFINITY))

    def warm_up(self, name: str) -> None:
        """Good files first: libraries are loaded and kernels compiled before time and memory are
        limited.
        """
        from coframe import InputError

        for seed in sorted((CORPUS / name).glob("seed*")):
            self.path.write_bytes(seed.read_bytes())
            with contextlib.suppress(InputError):
                self.target.read(self.path)

    def run(self, data: bytes) -> None:
        """One case.

        The process ends here by SIGPROF or SIGALRM when it hangs, or by whatever a native library
        does to it.
        """
        from coframe import InputError

        self.path.write_bytes(data)
        signal.setitimer(signal.ITIMER_PROF, HANG)
        signal.setitimer(signal.ITIMER_REAL, ASLEEP)
        try:
            self.target.read(self.path)
        except InputError as error:
            self.refused += 1
            if _greedy(error):
                self.found("memory", error)
            elif "\n" in str(error):
                self.found("message", error)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            self.found(type(error).__name__, error)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
        self.done += 1
        self.count[:] = struct.pack("<QQ", self.done, self.refused)

    def found(self, kind: str, error: BaseException) -> None:
        """Keep the input, once for each place that it goes wrong in."""
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if "fuzz" not in frame.filename
        ]
        where = f"{kind} {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else kind
        if where not in self.seen:
            self.seen.add(where)
            keep(self.path, self.folder, kind, "".join(traceback.format_exception(error)))


def keep(path: Path, folder: Path, kind: str, text: str) -> Path:
    """A finding: the input under its own name, and what happened beside it."""
    data = path.read_bytes()
    kept = folder / f"{kind}-{hashlib.sha256(data).hexdigest()[:10]}{path.suffix}"
    kept.write_bytes(data)
    kept.with_suffix(".why").write_text(text)
    return kept


def _greedy(error: BaseException | None) -> bool:
    """Whether memory ran out before this error: a small file asked for more than a gigabyte."""
    while error is not None:
        if (
            isinstance(error, MemoryError)
            or "MemoryError" in str(error)
            or "bad_alloc" in str(error)
        ):
            return True
        error = error.__cause__ or error.__context__
    return False


def own(cases: Cases, seeds: list[bytes], runs: int, seed: int, seconds: float) -> None:
    """Random changes of the seeds, blind to what they reach."""
    from fuzz.mutate import mutated

    draw, end = random.Random(seed), time.monotonic() + seconds
    kept = list(seeds)
    tokens = _words(seeds)
    while cases.done < runs and time.monotonic() < end:
        refused = cases.refused
        data = mutated(draw.choice(kept), draw, seeds, tokens)
        cases.run(data)
        if cases.refused == refused and draw.random() < 0.02:  # what was read is a base for more
            if len(kept) > len(seeds) + 200:
                kept.pop(draw.randrange(len(seeds), len(kept)))
            kept.append(data)


def guided(cases: Cases, seeds: list[bytes], runs: int, seed: int, seconds: float) -> None:
    """libFuzzer drives the same changes, and its own, to code that no case has reached.

    Ends the process.
    """
    import atheris

    from fuzz.mutate import mutated

    tokens, corpus = _words(seeds), cases.folder / "corpus"
    corpus.mkdir(exist_ok=True)
    for i, data in enumerate(seeds):
        (corpus / f"{i}").write_bytes(data)

    def change(data: bytes, most: int, number: int) -> bytes:
        draw = random.Random(number)
        return (
            atheris.Mutate(data, most)
            if draw.random() < 0.3
            else mutated(data, draw, seeds, tokens)[:most]
        )

    arguments = [
        sys.argv[0],
        f"-runs={runs}",
        f"-seed={seed + 1}",
        f"-max_total_time={int(seconds)}",
        "-max_len=65536",
        "-timeout=0",
    ]
    arguments += [
        "-rss_limit_mb=0",
        "-verbosity=0",
        "-print_final_stats=0",
        "-handle_segv=0",
        "-handle_abrt=0",
        str(corpus),
    ]
    atheris.Setup(arguments, cases.run, custom_mutator=change)
    atheris.Fuzz()


def _words(seeds: list[bytes]) -> list[bytes]:
    """The words of the seeds, for use in other places."""
    words = {word for data in seeds for word in data[:2000].split() if len(word) <= 24}
    return sorted(words)[:300]


def load(engine: str) -> Callable[[Cases, list[bytes], int, int, float], None]:
    """The engine; for libFuzzer, the readers are loaded with counters at their branches."""
    if engine == "own":
        return own
    import atheris

    modules = (
        "clouds",
        "e57",
        "images",
        "las",
        "mesh",
        "pcd",
        "ply",
        "poses",
        "npy",
        "kitti",
        "scan",
        "text",
        "npz",
    )
    readers = [f"coframe.io.{name}" for name in modules]
    others = [
        "coframe.io.trajectory",
        "coframe.io.frames",
        "coframe.sequence",
        "coframe.result",
    ]
    libraries = ["plyfile", "laspy", "trimesh.exchange", "PIL.PngImagePlugin"]
    compiled = [
        "coframe.em.joint_kernels",
        "coframe.em.kernels",
        "coframe.em.joint_sparse_kernels",
        "coframe.io.table",
        "coframe.io.table_kernels",
        "coframe.align.denoise",
        "coframe.start",
        "fuzz",
    ]
    included = [*readers, *others, *libraries]
    with atheris.instrument_imports(
        include=included, exclude=compiled, enable_loader_override=False
    ):
        import coframe  # noqa: F401
        import fuzz.targets  # noqa: F401
    return guided


def replay(folder: Path) -> None:
    """Every file once, all targets in this process."""
    outcome = {}
    for name, files in json.loads(sys.stdin.read()).items():
        cases, read = Cases(name, folder / name), []
        for path in files:
            (folder / "now").write_text(path)
            refused = cases.refused
            cases.run(Path(path).read_bytes())
            if cases.refused == refused:
                read.append(path)
        outcome[name] = [sorted(cases.seen), read]
    print(json.dumps(outcome))


def main() -> None:
    if sys.argv[1] == "replay":
        os.environ["RUST_BACKTRACE"] = "0"
        replay(Path(sys.argv[2]))
        return
    name, folder, runs, seed, seconds, engine = sys.argv[1:7]
    os.environ |= {"NUMBA_NUM_THREADS": "1", "RUST_BACKTRACE": "0"}  # a backtrace takes seconds
    drive = load(engine)
    cases = Cases(name, Path(folder))
    seeds = [
        path.read_bytes() for path in sorted((CORPUS / name).iterdir()) if path.suffix != ".why"
    ]
    drive(cases, seeds, int(runs), int(seed), float(seconds))


if __name__ == "__main__":
    main()

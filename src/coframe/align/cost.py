# SPDX-License-Identifier: MIT
"""What a run on files larger than memory will take: memory and time, known before it starts."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from coframe.align.recipe import ALIGN, AlignRecipe
from coframe.em import joint_sparse
from coframe.errors import InputError
from coframe.input.options import Options
from coframe.io.clouds import rough_count
from coframe.threads import available_cores

UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}

# Bytes, from the sizes of the arrays that are alive at the same time (see benchmarks/outofcore.py).

# [size] Per cloud and component: the moments of two chains, of the steps they may reject, and sums.
COMPONENT = 1000
# [size] Per component: the mixture as the kernels want it, of all chains and threads.
KERNEL = 30_000
# [size] Per drawn point: coordinates, weight, order.
DRAWN = 60
# [size] Per pair of clouds: the joint system of two chains and its factors.
TWIST = 6 * 6 * 8 * 8
# [size] Per cloud and component of the sparse system: what couples them, of two chains.
PAIR = 18 * 8 * 4
# [size] Per pair of components of the sparse system: what is factored instead.
MODEL = 3 * 3 * 8 * 6
# [size] Per thread: a block of points on its way through the kernels or to a file, or two scans.
THREAD = 270_000_000
# [size] Per cloud: the thinned scan that the start matches.
SCAN = 2_000_000
# [size] A process that has done nothing yet, where that cannot be measured.
IMPORTED = 250_000_000
# [size] What a run needs whatever its size, beyond what is imported.
PROCESS = 60_000_000

# Seconds, measured by benchmarks/outofcore.py: a guide, no more.

# [size] Seconds per point, whatever the number of threads: files are read one after the other.
READ = 7e-7
# [size] Seconds per point on one thread: summarised, thinned, classified and written.
POINT = 2e-6
# [size] Seconds per cloud, point of a level and component, on one thread: all iterations of all
# levels.
WORK = 4e-7
# [size] Seconds until work begins.
BEGIN = 2.0


@dataclass(frozen=True)
class Estimate:
    """What a run will take."""

    memory: int  # bytes, at the most
    seconds: float  # about

    def described(self) -> str:
        """In words."""
        time = f"{self.seconds / 60:.0f} min" if self.seconds > 100 else f"{self.seconds:.0f} s"
        return f"about {time}, at most {self.memory / 1e6:.0f} MB of memory"


def bytes_of(value: str | int, name: str = "memory") -> int:
    """A size: a number of bytes, or text such as 2GB or 512 MiB.

    >>> bytes_of("1.5GB")
    1500000000
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", str(value), re.IGNORECASE)
    if isinstance(value, bool) or not match or match[2].lower() not in UNITS:
        raise InputError(f"{name}: expected a size such as 2GB or 512MB, found {value!r}")
    return int(float(match[1]) * UNITS[match[2].lower()])


def needed(clouds: int, options: Options, recipe: AlignRecipe = ALIGN) -> int:
    """Bytes that a run needs at the most, with what this process has already.

    They do not depend on the number of points.
    """
    threads = available_cores() if options.threads is None else options.threads
    drawn = recipe.drawn_levels * options.points * DRAWN
    K = options.components
    poses = K * (PAIR * clouds + MODEL * K) if joint_sparse.pays(clouds, K) else TWIST * clouds**2
    model = K * (COMPONENT * clouds + KERNEL)
    return _resident() + PROCESS + model + clouds * (drawn + SCAN) + poses + THREAD * threads


def estimate(paths: Sequence[Path], options: Options) -> Estimate:
    """What files will take, from their number and that of their points."""
    threads = available_cores() if options.threads is None else options.threads
    points = sum(map(rough_count, paths))
    work = points * POINT + len(paths) * options.points * options.components * WORK
    return Estimate(needed(len(paths), options), BEGIN + points * READ + work / threads)


def check(clouds: int, options: Options, memory: str | int, recipe: AlignRecipe = ALIGN) -> int:
    """The bytes that are needed; raises where they are more than the budget."""
    budget, found = bytes_of(memory), needed(clouds, options, recipe)
    if found > budget:
        raise InputError(
            f"memory: expected at least {found / 1e6:.0f} MB for {clouds} clouds and"
            f" {options.components} components, found {_megabytes(budget)} MB; allow more, or use"
            " fewer threads, components or points"
        )
    return found


def _megabytes(size: float | int) -> str:
    return f"{size / 1e6:.0f}" if size > 1e6 else f"{size / 1e6:.2g}"


def _resident() -> int:
    """Bytes that this process has had in memory at once, up to now, Numba included."""
    import_module("coframe.em.kernels")
    status = Path("/proc/self/status")
    # Linux, whose getrusage starts with the peak of the process that started this one
    if status.exists():
        return next(
            1024 * int(line.split()[1])
            for line in status.read_text().splitlines()
            if line.startswith("VmHWM")
        )
    if sys.platform == "win32":
        return IMPORTED
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak

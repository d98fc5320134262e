# SPDX-License-Identifier: MIT
"""What each number of the recipes changes: `python -m proving sensitivity`.

Every number is multiplied and divided by a factor, every switch is turned, one at a time, on a few
problems of the *tune* half that are chosen for its stage. Results are lines of JSON in
`build/proving/sensitivity.jsonl`; what is done is not done again. When all is done, the record is
`proving/results/sensitivity.json`.
"""

import argparse
import hashlib
import importlib
import inspect
import json
import math
import multiprocessing
import pkgutil
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import coframe
from benchmarks.record import machine
from coframe import geometry
from coframe.align.recipe import ALIGN
from coframe.sequence.recipe import SEQUENCE
from coframe.start.recipe import START
from proving import families, plan, run, tables
from proving.problem import Answer, Problem

STAGES = ("em", "start", "align", "sequence")
FACTOR = 1.5
# Fields of the recipe of the alignment that are the stage em.
EM = ("model", "loop", "localise")
# [size] Frames of a sequence, so that all problems of a stage take about 15 s.
FRAMES = 40
# Condition and family of the problems of a stage: the first scene of the tune half that has both.
PROBLEMS = {
    "em": (("near", "object"), ("clutter", "object"), ("near", "room")),
    "align": (("far", "object"), ("noise", "object"), ("near", "room"), ("wrong_start", "street")),
    "start": (
        ("nothing", "object"),
        ("overlap_30", "object"),
        ("nothing", "corridor"),
        ("nothing", "floor"),
    ),
    "sequence": (("in_own_frame", "room path"),),
}
# Names whose numbers stay within a range whatever the factor: shares and cosines.
SHARES = ("share", "cosine", "overlap", "inliers", "chance", "balance", "probability", "_below")
LARGEST_SHARE = 0.99


@dataclass(frozen=True)
class Change:
    """One number with another value."""

    stage: str
    path: str  # such as "trials.0.components"
    value: Any
    new: Any
    factor: float  # 0 for a switch

    @property
    def name(self) -> str:
        return f"{self.stage}/{self.path} {self.factor:.3g}"


# Numbers of recipes


def numbers(recipe: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Path and value of every number, tuple of numbers and switch of a recipe."""
    for each in fields(recipe):
        value = getattr(recipe, each.name)
        here = f"{path}{each.name}"
        if is_dataclass(value):
            yield from numbers(value, f"{here}.")
        elif isinstance(value, tuple) and value and is_dataclass(value[0]):
            for i, part in enumerate(value):
                yield from numbers(part, f"{here}.{i}.")
        elif isinstance(value, bool | int | float | tuple):
            yield here, value


def recipe_of(stage: str) -> Any:
    """The recipe that has the numbers of a stage."""
    return {"em": ALIGN, "align": ALIGN, "start": START, "sequence": SEQUENCE}[stage]


def stage_numbers(stage: str) -> list[tuple[str, Any]]:
    """Path and value of the numbers of a stage."""
    found = numbers(recipe_of(stage))
    if stage in ("em", "align"):
        return [each for each in found if (each[0].split(".")[0] in EM) == (stage == "em")]
    return list(found)


def scaled(path: str, value: Any, factor: float) -> Any:
    """A number times a factor: whole numbers change by one at least, shares stay below one."""
    if isinstance(value, tuple):
        return tuple(None if each is None else scaled(path, each, factor) for each in value)
    if isinstance(value, int):
        new = round(value * factor)
        step = 1 if factor > 1 else -1
        return max(value + step if new == value else new, 0)
    new = value * factor
    if 0 < value < 1 and any(word in path for word in SHARES):
        new = min(new, max(LARGEST_SHARE, value))
    return new


def changes(stage: str, factor: float = FACTOR) -> list[Change]:
    """Every number of a stage, up and down; every switch, once."""
    found = []
    for path, value in stage_numbers(stage):
        if isinstance(value, bool):
            found.append(Change(stage, path, value, not value, 0.0))
            continue
        for each in (factor, 1 / factor):
            new = scaled(path, value, each)
            if new != value:
                found.append(Change(stage, path, value, new, each))
    return found


def changed(recipe: Any, path: str, new: Any) -> Any:
    """The recipe with another value at a path."""
    first, _, rest = path.partition(".")
    value = getattr(recipe, first)
    if not rest:
        return replace(recipe, **{first: new})
    if isinstance(value, tuple):
        index, _, inner = rest.partition(".")
        parts = list(value)
        parts[int(index)] = changed(parts[int(index)], inner, new)
        return replace(recipe, **{first: tuple(parts)})
    return replace(recipe, **{first: changed(value, rest, new)})


def recording(recipe: Any, seen: set[str], path: str = "") -> Any:
    """The same recipe, which remembers the paths of the numbers that are read."""
    kind = type(recipe)

    def read(self: Any, name: str) -> Any:
        if name in names:
            seen.add(f"{path}{name}")
        return object.__getattribute__(self, name)

    names = {each.name for each in fields(recipe)}
    parts = {}
    for each in fields(recipe):
        value = getattr(recipe, each.name)
        if is_dataclass(value):
            parts[each.name] = recording(value, seen, f"{path}{each.name}.")
        elif isinstance(value, tuple) and value and is_dataclass(value[0]):
            parts[each.name] = tuple(
                recording(part, seen, f"{path}{each.name}.{i}.") for i, part in enumerate(value)
            )
    copy = replace(recipe, **parts)
    # Digests and comparisons read all numbers, which says nothing about their use.
    unread = {
        "__repr__": lambda self: repr(recipe),
        "__hash__": lambda self: hash(recipe),
        "__eq__": lambda self, other: recipe == other,
        "__reduce__": lambda self: (replace, (recipe,)),
    }
    watching = type(kind.__name__, (kind,), {"__getattribute__": read, **unread})
    object.__setattr__(copy, "__class__", watching)
    return copy


# Problems and their solutions


def chosen(stage: str) -> list[plan.Entry]:
    """Problems of the tune half for a stage, of scenes that need no data of others."""
    simulated = {scene.name for scene in families.simulated() if not scene.conditions}
    found = []
    for condition, family in PROBLEMS[stage]:
        entries = plan.chosen(family=family, half="tune", condition=condition)
        paths = [each for each in entries if each.scene.kind == "track"]
        found.append((paths or [each for each in entries if each.scene.name in simulated])[0])
    return found


@cache
def problems(stage: str, folder: Path) -> list[tuple[Problem, dict[str, Any]]]:
    """The problems of a stage and what is known of them."""
    found = []
    for entry in chosen(stage):
        problem, about = run.make(folder, entry)
        if problem.kind == "track":
            clouds, truth = problem.clouds[:FRAMES], problem.truth[:FRAMES]
            problem = replace(problem, clouds=clouds, truth=truth)
        found.append((problem, about))
    return found


def solve(stage: str, problem: Problem, recipe: Any) -> Answer:
    """The answer of coframe with this recipe of the stage."""
    began, cpu = time.perf_counter(), time.process_time()

    def spent() -> dict[str, Any]:
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        seconds = time.perf_counter() - began
        return {"seconds": seconds, "cpu": time.process_time() - cpu, "memory": memory}

    try:
        if problem.kind == "track":
            names = ("points", "components", "every", "window", "iterations")
            given = {name: getattr(recipe, name) for name in names}
            options = coframe.TrackOptions(threads=1, **given)
            path = coframe.track(problem.clouds, options=options, recipe=recipe)
            lost = path.lost.tolist()
            groups = [[j for j, each in enumerate(lost) if not each]]
            groups += [[j] for j, each in enumerate(lost) if each]
            verdicts = ["failed" if each else "aligned" for each in lost]
            return Answer(path.poses, verdicts, groups, **spent())
        options = coframe.Options(threads=1)
        align = ALIGN
        if stage == "start":
            use_as_default(START, recipe)
        else:
            align = recipe
        result = coframe.register(problem.clouds, problem.start, options=options, recipe=align)
        return Answer(
            result.poses,
            [each.verdict for each in result.verdicts],
            [list(group) for group in result.groups],
            list(result.warnings),
            result.pose_covariance,
            **spent(),
        )
    except Exception as error:
        return Answer(None, error=f"{type(error).__name__}: {error}", **spent())
    finally:
        if stage == "start":
            use_as_default(START, START)


@cache
def defaults_of(recipe: Any) -> list[tuple[Callable[..., Any], int | str]]:
    """Functions of coframe with this recipe as a default, and which of their defaults it is.

    `register` takes the recipe of the alignment, but none of the start: it is exchanged where it is
    the default.
    """
    found: list[tuple[Callable[..., Any], int | str]] = []
    package = importlib.import_module("coframe.start")
    modules = [importlib.import_module("coframe.api.problem"), package]
    for each in pkgutil.iter_modules(package.__path__, "coframe.start."):
        modules.append(importlib.import_module(each.name))
    functions = []
    for module in modules:
        for value in vars(module).values():
            holders = vars(value).values() if isinstance(value, type) else [value]
            functions += [inspect.unwrap(getattr(each, "__func__", each)) for each in holders]
    for function in functions:
        for i, default in enumerate(getattr(function, "__defaults__", None) or ()):
            if default is recipe:
                found.append((function, i))
        for name, default in (getattr(function, "__kwdefaults__", None) or {}).items():
            if default is recipe:
                found.append((function, name))
    return found


def use_as_default(recipe: Any, new: Any) -> None:
    """Exchange a recipe where it is the default of a function."""
    for function, where in defaults_of(recipe):
        if isinstance(where, str):
            function.__kwdefaults__[where] = new
        else:
            values = list(function.__defaults__)
            values[where] = new
            function.__defaults__ = tuple(values)


Result = dict[str, Any]


def work(stage: str, change: Change | None, folder: Path) -> Result:
    """Solve the problems of a stage with one number changed; None: with none, and note which
    numbers are read.
    """
    seen: set[str] = set()
    recipe = recipe_of(stage)
    recipe = recording(recipe, seen) if change is None else changed(recipe, change.path, change.new)
    rows = []
    for problem, about in problems(stage, folder):
        answer = solve(stage, problem, recipe)
        found = run.row("", problem, about, answer)
        poses = None if answer.poses is None else np.asarray(answer.poses).tolist()
        scales = None
        if answer.covariance is not None:
            scales = np.sqrt(np.einsum("jpp->jp", answer.covariance)).tolist()
        centres = [np.median(cloud, axis=0).tolist() for cloud in problem.clouds]
        more = {"groups": answer.groups, "poses": poses, "deviations": scales, "centres": centres}
        rows.append({**found, **more})
    return {"rows": rows, "read": sorted(seen)}


def run_all(
    stages: Sequence[str],
    *,
    factor: float = FACTOR,
    build: Path = run.BUILD,
    seconds: float = math.inf,
    say: Callable[[str], object] = print,
) -> dict[str, Result]:
    """Run what is not done yet, for at most so many seconds; all results by name of the change."""
    folder = build / "problems" / run.makers_digest()
    folder.mkdir(parents=True, exist_ok=True)
    path = build / "sensitivity.jsonl"
    version = run.version_of(sorted(Path(coframe.__file__).parent.rglob("*.py")))["digest"]
    wanted: list[tuple[str, Change | None]] = []
    for stage in stages:
        wanted.append((stage, None))
        wanted += [(stage, each) for each in changes(stage, factor)]

    def key(stage: str, change: Change | None) -> str:
        made = "default" if change is None else f"{change.path} {change.new!r}"
        entries = " ".join(entry.name for entry in chosen(stage))
        text = f"{stage} {made} {version} {folder.name} {entries}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    done = run.done_so_far(path)
    found: dict[str, Result] = {}
    todo = []
    for stage, change in wanted:
        name = f"{stage}/default" if change is None else change.name
        if key(stage, change) in done:
            found[name] = done[key(stage, change)]
        else:
            todo.append((stage, change, name))
    run.end_last_line(path)
    began = time.monotonic()
    waiting = iter(todo)
    running: dict[Future[Result], tuple[str, Change | None, str]] = {}
    pool = ProcessPoolExecutor(run.JOBS, mp_context=multiprocessing.get_context("spawn"))
    finished = 0
    try:
        with open(path, "a", encoding="utf-8") as file:
            while True:
                while len(running) < run.JOBS and time.monotonic() - began < seconds:
                    task = next(waiting, None)
                    if task is None:
                        break
                    running[pool.submit(work, task[0], task[1], folder)] = task
                if not running:
                    break
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    stage, change, name = running.pop(future)
                    found[name] = {"key": key(stage, change), **future.result()}
                    file.write(json.dumps(found[name]) + "\n")
                    file.flush()
                    finished += 1
                    left = (time.monotonic() - began) / finished * (len(todo) - finished)
                    say(f"{finished}/{len(todo)} {name}; {left / 60:.0f} min left")
    except BaseException:
        for process in list(pool._processes.values()):
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
    return found


# What the results say


@dataclass(frozen=True)
class Effect:
    """What a change of one number changes, over all problems of its stage."""

    number: str
    value: str
    new: str
    placed: int  # clouds more that are right
    silent: int  # clouds more that are wrong and called aligned
    accuracy: float  # mean logarithm of the errors over those before
    chance: float  # standard error of that mean
    cpu: float  # ratio
    same: int  # problems whose poses are equal, or differ by less than their standard deviations
    problems: int
    read: bool  # whether the number was read at all
    # Standard deviations of such differences over all changes of the stage: most numbers matter
    # little, and where a start is a matter of chance, any change draws again.
    placed_chance: float = 0.0
    silent_chance: float = 0.0

    @property
    def finding(self) -> str:
        """In two or three words."""
        if not self.read:
            return "not reached"
        if abs(self.silent) > 2 * self.silent_chance or abs(self.placed) > 2 * self.placed_chance:
            better = self.silent <= 0 and self.placed >= 0
            worse = self.silent >= 0 and self.placed <= 0
            return "better" if better else "worse" if worse else "mixed"
        if abs(self.accuracy) > 2 * self.chance + 0.01:
            return "more accurate" if self.accuracy < 0 else "less accurate"
        return "nothing" if 2 * self.same >= self.problems else "within chance"


def effect(change: Change, before: Result, after: Result) -> Effect:
    """Compare the results with a changed number with those of the default, problem by problem."""
    pairs = list(zip(before["rows"], after["rows"], strict=True))
    both = [(tables.error(a), tables.error(b)) for a, b in pairs]
    ratios = [math.log(b / a) for a, b in both if a and b]
    spread = float(np.std(ratios, ddof=1)) if len(ratios) > 1 else 0.0
    return Effect(
        f"{change.stage}: {change.path}",
        shown(change.value),
        shown(change.new),
        sum(b["placed"] - a["placed"] for a, b in pairs),
        sum(b["silent"] - a["silent"] for a, b in pairs),
        float(np.mean(ratios)) if ratios else 0.0,
        spread / math.sqrt(max(len(ratios), 1)),
        sum(b["cpu"] for _, b in pairs) / max(sum(a["cpu"] for a, _ in pairs), 1e-9),
        sum(same(a, b) for a, b in pairs),
        len(pairs),
        change.path in before["read"],
    )


def same(one: Result, other: Result) -> bool:
    """Whether poses are equal, or differ by less than the standard deviations of the first."""
    if one["poses"] is None or other["poses"] is None or one["groups"] != other["groups"]:
        return one["poses"] == other["poses"]
    if one["poses"] == other["poses"]:
        return True
    if one["deviations"] is None:
        return False
    A, B = np.array(one["poses"]), np.array(other["poses"])
    D = A.shape[1] - 1
    for group in one["groups"]:
        first = group[0]
        carried = A[first] @ geometry.inverse(B[first])
        for j in group[1:]:
            centre = np.array(one["centres"][j])[None]
            gap = geometry.transform(A[j], centre) - geometry.transform(carried @ B[j], centre)
            turn = geometry.angle(geometry.rotation(A[j]).T @ geometry.rotation(carried @ B[j]))
            deviation = np.array(one["deviations"][j])
            if turn > np.linalg.norm(deviation[:-D]) or np.linalg.norm(gap) > np.linalg.norm(
                deviation[-D:]
            ):
                return False
    return True


def shown(value: Any) -> str:
    """A value in few characters."""
    if isinstance(value, tuple):
        return ", ".join(shown(each) for each in value)
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def effects(stages: Sequence[str], found: dict[str, Result], factor: float) -> list[Effect]:
    """Of all changes that were run beside the default of their stage."""
    all_effects = []
    for stage in stages:
        if f"{stage}/default" not in found:
            continue
        made = [
            effect(change, found[f"{stage}/default"], found[change.name])
            for change in changes(stage, factor)
            if change.name in found
        ]
        read = [each for each in made if each.read]
        spread = {
            "placed_chance": float(np.std([each.placed for each in read])) if read else 0.0,
            "silent_chance": float(np.std([each.silent for each in read])) if read else 0.0,
        }
        # One problem has no spread of its own.
        usual = float(np.std([each.accuracy for each in read])) if read else 0.0
        made = [each if each.chance else replace(each, chance=usual) for each in made]
        all_effects += [replace(each, **spread) for each in made]
    return all_effects


def record_of(all_effects: Sequence[Effect], factor: float) -> dict[str, Any]:
    """The record, from which the page has its table."""
    files = sorted(Path(coframe.__file__).parent.rglob("*.py"))
    return {
        "factor": factor,
        "version": run.version_of(files),
        "machine": machine(),
        "date": datetime.now(UTC).date().isoformat(),
        "problems": {stage: [each.name for each in chosen(stage)] for stage in STAGES},
        "rows": [{**asdict(each), "finding": each.finding} for each in all_effects],
    }


def line(found: Effect) -> str:
    """One line of the printed table."""
    change = f"{found.number} {found.value} -> {found.new}"
    accuracy = f"{100 * math.expm1(found.accuracy):+.0f} ± {100 * found.chance:.0f} %"
    counts = f"{found.placed:+d} placed, {found.silent:+d} silent, error {accuracy}"
    return f"{change}\n    {found.finding}: {counts}, CPU x {found.cpu:.2f}"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m proving sensitivity",
        description="Vary every number of the recipes, one at a time, on problems of the tune"
        " half, and print what each changes.",
    )
    parser.add_argument("--stage", choices=STAGES, help="numbers of this stage alone")
    parser.add_argument("--factor", type=float, default=FACTOR, help="default: %(default)s")
    parser.add_argument(
        "--slice",
        type=float,
        default=math.inf,
        metavar="SECONDS",
        help="start nothing further after so many seconds; the same command continues",
    )
    options = parser.parse_args(arguments)
    if options.factor <= 1:
        parser.error("--factor: expected a number above 1")
    stages = STAGES if options.stage is None else (options.stage,)
    found = run_all(stages, factor=options.factor, seconds=options.slice)
    all_effects = effects(stages, found, options.factor)
    for each in all_effects:
        print(line(each))
    print(Counter(each.finding for each in all_effects))
    missing = sum(len(changes(stage, options.factor)) for stage in stages) - len(all_effects)
    if missing:
        print(f"{missing} changes are left: the same command continues.")
    elif stages == STAGES:
        run.RESULTS.mkdir(parents=True, exist_ok=True)
        path = run.RESULTS / "sensitivity.json"
        path.write_text(json.dumps(record_of(all_effects, options.factor), indent=1) + "\n")
        print(f"record: {path.relative_to(run.ROOT)}")

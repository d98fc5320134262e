# SPDX-License-Identifier: MIT
"""How deep the equations are: the longest chain of functions from `register` to one of them."""

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest
from scenes import unchecked

import coframe
from coframe import geometry
from coframe.align.recipe import ALIGN
from coframe.data import simulate

ROOT = Path(coframe.__file__).parent
DOORS = ("em.estep", "em.joint", "em.mstep")
VALUES = ("em.estep.Cloud.",)  # points as the kernels want them: data, no equation
LIMIT = 6  # functions, `register` and the first one of the module included
QUICK = coframe.Options(components=10, points=100, iterations=2, threads=1)
# Every kind of phase, but each once.
SHORT = replace(ALIGN, reach_count=1, trial_levels=2, max_repetitions=1)

Chain = tuple[str, ...]


@cache
def name_of(code: CodeType) -> str | None:
    """A function of coframe by module and name; None for lambdas, local functions and others."""
    file = Path(code.co_filename)
    if "<" in code.co_qualname or not file.is_relative_to(ROOT):
        return None
    module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
    return f"{module}.{code.co_qualname}"


def chain_of(frame: FrameType | None) -> Chain:
    """The named functions that led to a frame, the first one first."""
    names = []
    while frame is not None:
        if name := name_of(frame.f_code):
            names.append(name)
        frame = frame.f_back
    return tuple(reversed(names))


class Recorder:
    """The longest chain to each module of DOORS, through thread pools too."""

    def __init__(self) -> None:
        self.longest: dict[str, Chain] = {}
        self.before = threading.local()  # the chain that led to a task of a pool

    def whole(self, frame: FrameType | None) -> Chain:
        return (*getattr(self.before, "chain", ()), *chain_of(frame))

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        name = name_of(frame.f_code) if event == "call" else None
        if name is None or not is_equation(name):
            return
        *chain, _ = self.whole(frame)
        door = module_of(name)
        if "api.register.register" not in chain or any(map(is_equation, chain)):
            return
        path = (*chain[chain.index("api.register.register") :], name)
        if len(path) > len(self.longest.get(door, ())):
            self.longest[door] = path

    @contextmanager
    def recording(self) -> Iterator[None]:
        submit = ThreadPoolExecutor.submit
        recorder = self

        def submit_with_chain(
            pool: ThreadPoolExecutor, task: Callable[..., Any], *arguments: Any, **options: Any
        ) -> Future[Any]:
            chain = recorder.whole(sys._getframe(1))

            def run(*arguments: Any, **options: Any) -> Any:
                recorder.before.chain = chain
                return task(*arguments, **options)

            return submit(pool, run, *arguments, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ThreadPoolExecutor, "submit", submit_with_chain)
            sys.setprofile(self)
            threading.setprofile(self)
            try:
                yield
            finally:
                sys.setprofile(None)
                threading.setprofile(None)


def module_of(name: str) -> str:
    return ".".join(name.split(".")[:2])


def is_equation(name: str) -> bool:
    return module_of(name) in DOORS and not name.startswith(VALUES)


def given_poses() -> coframe.Registration:
    scene = simulate.scene(3, 150, degrees=30.0, rng=np.random.default_rng(0))
    return coframe.register(scene.clouds, scene.poses, options=QUICK, recipe=SHORT)


def from_nothing_in_the_plane() -> coframe.Registration:
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 6, 400)
    shape = np.stack([np.cos(angle), 0.6 * np.sin(angle) + 0.2 * np.cos(3 * angle)], 1)
    turns = np.array([geometry.random_rotation(rng, 2) for _ in range(3)])
    poses = geometry.pose(turns, rng.normal(size=(3, 2)))
    clouds = [geometry.transform(pose, shape[j::3]) for j, pose in enumerate(poses)]
    return coframe.register(clouds, options=QUICK, recipe=SHORT)


@pytest.mark.parametrize("work", [given_poses, from_nothing_in_the_plane])
def test_every_equation_is_near(work: Callable[[], coframe.Registration]) -> None:
    recorder = Recorder()
    with unchecked(), recorder.recording():
        work()
    assert set(recorder.longest) == set(DOORS)
    for door, chain in sorted(recorder.longest.items()):
        print(f"\n{door}: {len(chain)} functions\n  " + "\n  -> ".join(chain))
    assert max(map(len, recorder.longest.values())) <= LIMIT

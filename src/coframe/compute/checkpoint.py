# SPDX-License-Identifier: MIT
"""What a run has done so far, kept in a file, so that an interrupted run goes on to the very same
result.

A run is a deterministic function of its input, so only its costly parts are kept: how far each EM
phase has come, and what was found out about each pair of scans. Each is known by a digest of what
it began with. A run that goes on begins at the beginning, finds these parts done, and is soon where
it was.
"""

import hashlib
import io
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from jaxtyping import Shaped

from coframe.compute import database
from coframe.compute.database import UNREADABLE
from coframe.em import loop
from coframe.em.loop import Fit, Iteration, State, Status, Steps, Stopping
from coframe.em.mixture import Mixture
from coframe.errors import InputError
from coframe.io import npz
from coframe.io.transaction import locked
from coframe.types import Array, Poses

FORMAT = "coframe-checkpoint/2"
# [size] Seconds from one write to the next.
SECONDS = 3.0
# [format] Bytes of the checksum before each record.
SEAL = 20
# How an EM phase may have ended.
ENDS = [None, *Status]

Arrays = Mapping[str, Shaped[Array, "..."]]


class Checkpoint:
    """The checkpoint of one run: a file that is gone when the run has ended well. No other process
    can write to its folder meanwhile.

    `resume` goes on with what an interrupted run left in the file; without, the file begins anew.
    What is written is on disk, whole, before the run goes on, so that neither `kill -9` nor a power
    cut leaves anything else behind. `every`: seconds from one write to the next.

    >>> with coframe.Checkpoint("out/checkpoint.db", resume=True) as checkpoint:
    ...     result = coframe.register(clouds, checkpoint=checkpoint)
    ...     result.save("out")
    """

    def __init__(
        self, path: str | os.PathLike[str], *, resume: bool = False, every: float | None = None
    ) -> None:
        self.path = Path(path)
        self.resumed = resume and self.path.exists()  # whether there was anything to go on with
        self._every, self._last = SECONDS if every is None else every, time.monotonic()
        self._stopped = False
        self._lock = threading.Lock()  # several phases run side by side
        self._waiting: dict[str, Arrays] = {}  # not yet written
        self._owned = ExitStack()  # the folder, once the run has begun

    @cached_property
    def _file(self) -> sqlite3.Connection:
        """Opened when the run begins: one that cannot read its clouds leaves nothing behind."""
        self._owned.enter_context(locked(self.path.parent))
        if not self.resumed:
            database.check_ours(self.path)
            self._remove()
        try:
            return database.connect(self.path)
        except (*UNREADABLE, OSError) as error:
            raise InputError(
                f"{self.path}: expected a checkpoint of coframe that can be written, found"
                f" {_line(error)}"
            ) from None

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._owned:
            if "_file" not in vars(self):  # the run never began
                return
            if kind is not None:
                with suppress(InputError):  # What ended the run matters more.
                    self.write()
            self._file.close()
            if kind is None:
                self._remove()

    def stop(self) -> None:
        """Have the run end with KeyboardInterrupt as soon as it next turns to its checkpoint.

        For signal handlers.
        """
        self._stopped = True

    def begin(
        self, options: Mapping[str, Any], clouds: Sequence[tuple[str, str]], start: str
    ) -> None:
        """Say what the run is about: options, name and digest of each cloud, and the digest of
        start poses and the like.

        Raises InputError, naming what has changed, when the file is of another run.
        """
        about = {
            "format": FORMAT,
            "version": _version(),
            "options": dict(options),
            "clouds": list(clouds),
            "start": start,
        }
        kept = self._read("run")
        if kept is None:
            self._waiting["run"] = {"json": np.array(json.dumps(about))}
            self.write()
            return
        try:
            _compare(
                str(self.path.parent), json.loads(str(kept["json"])), json.loads(json.dumps(about))
            )
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
            raise InputError(
                f"{self.path}: expected a checkpoint of coframe, found another file ({error!r})"
            ) from None

    def batch(
        self,
        steps: Steps,
        poses: Poses,
        mixture: Mixture,
        stopping: Stopping,
        *,
        accelerated: bool = False,
        history: tuple[Iteration, ...] = (),
        on_iteration: Callable[[Iteration], bool | None] = loop.carry_on,
    ) -> Fit:
        """`loop.batch`, from where it was left, if it was."""
        settings = [asdict(stopping), accelerated, len(history)]
        key = digest(*mixture.to_arrays().values(), poses, np.array(json.dumps(settings)))
        kept = self._read(key)
        return loop.batch(
            steps,
            poses,
            mixture,
            stopping,
            accelerated=accelerated,
            history=history,
            on_iteration=on_iteration,
            state=None if kept is None else _state_from_arrays(kept, history),
            on_state=partial(self._keep_state, key, len(history)),
        )

    def recall(self, began: Array) -> Array | None:
        """What was found out from this beginning, if that is known."""
        kept = self._read(digest(began))
        return None if kept is None else kept["value"]

    def remember(self, began: Array, value: Array) -> None:
        """Keep what was found out from this beginning."""
        self._keep(digest(began), {"value": value})

    def kept(self, key: str) -> Arrays | None:
        """The arrays that `keep` was last given under this key, if any."""
        return self._read(key)

    def keep(self, key: str, arrays: Arrays) -> None:
        """Keep arrays under a key of their own; they replace those kept before."""
        self._keep(key, arrays)

    def write(self) -> None:
        """Write what is not yet written, all of it or nothing."""
        with self._lock:
            rows = [(key, _sealed(key, _bytes(arrays))) for key, arrays in self._waiting.items()]
            try:
                with self._file:
                    self._file.executemany("INSERT OR REPLACE INTO record VALUES (?, ?)", rows)
            except UNREADABLE as error:
                raise InputError(
                    f"{self.path}: expected to write the checkpoint, found {_line(error)};"
                    " free some space, or choose another folder"
                ) from None
            self._waiting.clear()
            self._last = time.monotonic()

    def _keep_state(self, key: str, known: int, state: State) -> None:
        self._keep(key, _state_to_arrays(state, known))

    def _keep(self, key: str, arrays: Arrays) -> None:
        self._check()
        with self._lock:
            self._waiting[key] = arrays
        if time.monotonic() - self._last > self._every:
            self.write()

    def _check(self) -> None:
        if self._stopped:
            raise KeyboardInterrupt

    def _read(self, key: str) -> Arrays | None:
        self._check()
        with self._lock:
            if key in self._waiting:
                return self._waiting[key]
            try:
                value = database.find(
                    self._file,
                    key,
                    most=self.path.stat().st_size,
                    is_stopped=lambda: self._stopped,
                )
            except UNREADABLE as error:
                self._check()
                raise InputError(
                    f"{self.path}: expected a checkpoint of coframe, found {_line(error)}"
                ) from None
        if value is None:
            return None
        content = value[SEAL:] if isinstance(value, bytes) else b""
        try:
            if _sealed(key, content) != value:
                raise ValueError("another checksum")
            return npz.read_bytes(content)
        except ValueError:
            raise InputError(
                f"{self.path}: expected a checkpoint of coframe, found a damaged one; begin anew"
                " without --resume"
            ) from None

    def _remove(self) -> None:
        for name in (self.path.name, f"{self.path.name}-journal"):
            self.path.with_name(name).unlink(missing_ok=True)


def digest(*arrays: Shaped[Array, "..."]) -> str:
    """A digest of these arrays, in this order, with their shapes and types."""
    found = hashlib.blake2b(digest_size=20)
    for array in arrays:
        found.update(f"{array.dtype.str}{array.shape}".encode())
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def _version() -> str:
    from importlib.metadata import version

    return version("coframe")


def _compare(folder: str, kept: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise when the run is another one, naming what has changed."""
    as_before = f"as in the interrupted run in {folder}"
    for name in ("format", "version"):
        if kept[name] != now[name]:
            raise InputError(f"{name}: expected {kept[name]}, {as_before}, found {now[name]}")
    before, names = ([name for name, _ in about["clouds"]] for about in (kept, now))
    if before != names:
        raise InputError(
            f"clouds: expected {', '.join(before)}, {as_before}, found {', '.join(names)}"
        )
    for (name, found), (_, expected) in zip(now["clouds"], kept["clouds"], strict=True):
        if found != expected:
            raise InputError(
                f"{name}: expected the same points {as_before}, found others; leave --resume out to"
                " begin anew"
            )
    for name, value in now["options"].items():
        if kept["options"].get(name) != value:
            raise InputError(
                f"{name}: expected {kept['options'].get(name)!r}, {as_before}, found {value!r}"
            )
    if kept["start"] != now["start"]:
        raise InputError(
            f"poses, weights, fixed, priors or recipe: expected the same {as_before}, found others"
        )


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _sealed(key: str, content: bytes) -> bytes:
    """The content behind a sum over it and its key: a run goes on from what was written, or not at
    all.
    """
    return hashlib.blake2b(key.encode() + content, digest_size=SEAL).digest() + content


def _bytes(arrays: Arrays) -> bytes:
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()


def _state_to_arrays(state: State, known: int) -> Arrays:
    """A state as arrays, without the history that was known when its phase began."""
    end = ENDS.index(state.status)
    numbers = [state.stride, state.taken, state.turns, state.best, end]
    arrays = {
        "poses": state.poses,
        "loop": np.array(numbers),
        **loop.history_to_arrays(state.history[known:]),
        **state.mixture.to_arrays(),
    }
    if state.twist is not None:
        arrays["twist"] = state.twist
    if state.before is not None:
        poses, mixture = state.before
        arrays |= {"before_poses": poses, **mixture.to_arrays("before_")}
    return arrays


def _state_from_arrays(kept: Arrays, history: tuple[Iteration, ...]) -> State:
    """The inverse of `_state_to_arrays`."""
    stride, taken, turns, best, end = kept["loop"].tolist()
    before = None
    if "before_poses" in kept:
        before = kept["before_poses"], Mixture.from_arrays(kept, "before_")
    return State(
        kept["poses"],
        Mixture.from_arrays(kept),
        stride,
        int(turns),
        best,
        kept.get("twist"),
        taken,
        before,
        (*history, *loop.history_from_arrays(kept)),
        ENDS[int(end)],
    )

# SPDX-License-Identifier: MIT
"""How clouds come in: arrays, files, files larger than memory, files that only workers read."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from coframe.compute.cluster import Client, Remote, check_client, collect, parted, submit_all
from coframe.compute.per_cloud import Local, PerCloud
from coframe.errors import InputError, optional
from coframe.input.checks import (
    STRAY,
    as_cloud,
    as_clouds,
    as_indices,
    as_list,
    as_names,
    as_weights,
    check_alike,
)
from coframe.input.normalise import Summary
from coframe.input.options import check_callables, check_threads
from coframe.input.source import ROWS, InMemory, OnDisk, Source, without_strays
from coframe.input.spread import MOST, count_of, spread
from coframe.io import clouds as cloud_files
from coframe.io.transaction import SCRATCH, locked
from coframe.types import Array

# [size] Points of a cloud on disk that show whether it is a surface.
SAMPLE = 10_000


@dataclass(frozen=True)
class Given:
    """Checked clouds, where they are, and what is known of them."""

    clouds: PerCloud[Source]
    summaries: Sequence[Summary]
    names: Sequence[str]
    files: Sequence[Path] = ()
    loaded: Sequence[InMemory] = ()  # the clouds themselves, where all their points are here
    separate: bool = False  # whether merged points go to a file for each cloud
    sources: Sequence[Path] = ()  # all files, those of excluded scans, too
    excluded: Sequence[int] = ()  # numbers of the scans of these files that are left out

    @property
    def dimension(self) -> int:
        return len(self.summaries[0].median)

    @property
    def counts(self) -> list[int]:
        """The points of each cloud that count."""
        return [summary.count for summary in self.summaries]

    @cached_property
    def drawn(self) -> tuple[PerCloud[Source], list[int]]:
        """What fits draw from: large clouds as points spread evenly; and how many points count."""
        if max(self.counts) <= MOST:
            return self.clouds, self.counts
        clouds = self.clouds.map_keep(spread, self.summaries)
        return clouds, clouds.map(count_of)

    @property
    def sizes(self) -> list[int]:
        """All points of each cloud."""
        return [summary.size for summary in self.summaries]


@contextmanager
def open_clouds(
    clouds: Any,
    weights: Any,
    names: Sequence[str] | None,
    *,
    threads: int | None,
    cluster: Client | None = None,
    memory: str | int | None = None,
    output: str | PathLike[str] | None = None,
    on_file: Callable[[str], object] = lambda name: None,
    check_budget: Callable[[int], object] = lambda files: None,
    keep_strays: bool = False,
    exclude: Sequence[int] = (),
) -> Iterator[Given]:
    """The clouds, checked, wherever they are to be; see `register` for what the arguments are.

    check_budget: called with the number of files before they are read with a memory budget.
    keep_strays: points far away from all others count, too.
    exclude: numbers of scans of the files that are left out.
    """
    check_callables(on_file=on_file)
    check_threads(threads)
    clouds, paths, names = gathered(clouds, names)
    stay = paths and (cluster is not None or memory is not None)
    if cluster is not None:
        check_client(cluster)
    if memory is not None and (cluster is not None or not paths):
        raise InputError(
            "memory: expected clouds in files, to be registered on this machine, found others"
        )
    if exclude and not paths:
        raise InputError(
            "exclude: expected clouds in files, found others; leave them out of the list"
        )
    if output is not None and not stay:
        raise InputError(
            "output: expected clouds that stay in their files, found clouds in memory; use"
            " result.save(folder)"
        )
    if output is not None and not isinstance(output, str | PathLike):
        raise InputError(f"output: expected the path of a folder, found {type(output).__name__}")
    if weights is not None and stay:
        raise InputError(
            "weights: expected clouds in memory, found clouds that stay in their files"
        )
    if memory is not None:
        check_budget(len(cloud_files.expand(clouds)))
        folder = None if output is None else Path(output)
        with on_disk(
            clouds, names, threads=threads, folder=folder, on_file=on_file, exclude=exclude
        ) as given:
            yield given
    elif stay and cluster is not None:
        given = on_workers(clouds, None, cluster=cluster, exclude=exclude)
        yield given if names is None else replace(given, names=as_names(names, len(given.names)))
    elif paths:
        scans, files = cloud_files.open_all(clouds, on_file=lambda *about: on_file(about[2]))
        sources, stay_in = list(dict.fromkeys(files)), _kept(len(files), exclude)
        scans, files = [scans[j] for j in stay_in], [files[j] for j in stay_in]
        points = as_clouds([scan.points for scan in scans], names=[str(file) for file in files])
        titles = [scan.name for scan in scans] if names is None else as_names(names, len(scans))
        columns = [scan.numeric_attributes() for scan in scans]
        given = _loaded(points, columns, titles, weights, files, threads, None, keep_strays)
        yield replace(given, sources=sources, excluded=tuple(exclude))
    else:
        titles = [f"cloud {j}" for j in range(len(clouds))]
        titles = titles if names is None else as_names(names, len(clouds))
        points = as_clouds(clouds, names=titles)
        none: list[dict[str, Any]] = [{} for _ in points]
        yield _loaded(points, none, titles, weights, (), threads, cluster, keep_strays)


def _kept(count: int, exclude: Sequence[int]) -> list[int]:
    """The numbers of the scans that stay, of `count`."""
    out = set(as_indices(exclude, count, "exclude"))
    return [j for j in range(count) if j not in out]


def gathered(clouds: Any, names: Any) -> tuple[list[Any], bool, Any]:
    """What the user gave as clouds, as a list; whether these are paths; and their names if given.

    Of a dictionary, the keys are the names.
    """
    if isinstance(clouds, str | PathLike):
        clouds = [clouds]
    named = isinstance(clouds, Mapping)
    if named:
        if names is not None:
            raise InputError(
                "names: expected none beside a dictionary, whose keys are the names; leave names"
                " out, or pass a list of clouds"
            )
        names, clouds = as_names(clouds, len(clouds)), clouds.values()
    clouds = as_list(clouds)
    count = sum(isinstance(cloud, str | PathLike) for cloud in clouds)
    if 0 < count < len(clouds):
        raise InputError(
            f"clouds: expected files or arrays, found both, {count} of {len(clouds)} are files;"
            " read these with coframe.io.clouds.read"
        )
    if count and named:
        for name, path in zip(names, clouds, strict=True):
            if Path(path).is_dir() or cloud_files.expand([path]) != [Path(path)]:
                raise InputError(
                    f"{name}: expected one file for each name, found {path}; pass folders and"
                    " patterns in a list"
                )
        found = len(cloud_files.expand(clouds))
        if found != len(clouds):
            raise InputError(
                f"clouds: expected one file for each of {len(clouds)} names, found {found} files;"
                " name each file once"
            )
    return clouds, count > 0, names


def _loaded(
    points: list[Float[Array, "_ D"]],
    columns: Sequence[Mapping[str, Shaped[Array, " _"]]],
    names: Sequence[str],
    weights: Any,
    files: Sequence[Path],
    threads: int | None,
    cluster: Client | None,
    keep_strays: bool,
) -> Given:
    """Clouds whose points are all in memory, here or sent to workers."""
    plain = keep_strays and weights is None
    each = [None] * len(points) if plain else as_weights(weights, points)
    loaded = [InMemory(*row) for row in zip(points, each, columns, strict=True)]
    items: PerCloud[Source] = Local(loaded, threads)
    if cluster is not None:
        items = Remote.sent(_ready(cluster), loaded)
    return Given(items, items.map(Summary.of), names, files, loaded)


def on_workers(
    paths: Sequence[Any],
    names: Sequence[str] | None,
    *,
    cluster: Client,
    exclude: Sequence[int] = (),
) -> Given:
    """Clouds of files that workers read, each some of them."""
    client, found = _ready(cluster), cloud_files.expand(paths)
    parts = list(parted(len(found), client))
    read = submit_all(client, _read, [[str(found[i].absolute()) for i in part] for part in parts])
    heads = collect(client, submit_all(client, _heads, read))
    titles, each = cloud_files.titles(found, [own for head in heads for own in head])
    where = [(n, i) for n, head in enumerate(heads) for i in range(sum(map(len, head)))]
    stay = _kept(len(where), exclude)
    titles, each = [titles[j] for j in stay], [each[j] for j in stay]
    where = [where[j] for j in stay]
    clouds: PerCloud[Source] = Remote(client, submit_all(client, _bodies, read), where)
    summaries = clouds.map(Summary.of)
    check_alike(
        [len(s.median) for s in summaries],
        [s.extent for s in summaries],
        [str(file) for file in each],
    )
    clouds, summaries = _near(clouds, summaries)
    return Given(
        clouds,
        summaries,
        titles if names is None else names,
        each,
        separate=True,
        sources=found,
        excluded=tuple(exclude),
    )


@contextmanager
def on_disk(
    paths: Sequence[Any],
    names: Sequence[str] | None,
    *,
    threads: int | None,
    folder: Path | None,
    on_file: Callable[[str], object] = lambda name: None,
    exclude: Sequence[int] = (),
) -> Iterator[Given]:
    """Clouds of files that do not fit into memory.

    They are copied, in blocks, to files that are quick to read, and gone in the end.
    """
    found = cloud_files.expand(paths)
    with (
        nullcontext() if folder is None else locked(folder),
        tempfile.TemporaryDirectory(
            prefix=SCRATCH, dir=folder, ignore_cleanup_errors=True
        ) as scratch,
    ):
        scans = []
        for number, path in enumerate(found):
            on_file(path.name)
            scans.append(_spooled(path, Path(scratch), number))
        titles, each = cloud_files.titles(found, [[name for name, _ in own] for own in scans])
        clouds = [cloud for own in scans for _, cloud in own]
        stay = _kept(len(clouds), exclude)
        titles, each = [titles[j] for j in stay], [each[j] for j in stay]
        clouds = [clouds[j] for j in stay]
        for cloud, file in zip(clouds, each, strict=True):
            _check(cloud, str(file))
        items: PerCloud[Source] = Local(clouds, threads)
        summaries = items.map(Summary.of)
        check_alike(
            [cloud.shape[1] for cloud in clouds],
            [s.extent for s in summaries],
            [str(file) for file in each],
        )
        items, summaries = _near(items, summaries)
        titles = titles if names is None else as_names(names, len(titles))
        yield Given(items, summaries, titles, each, sources=found, excluded=tuple(exclude))


def _near(
    clouds: PerCloud[Source], summaries: list[Summary]
) -> tuple[PerCloud[Source], list[Summary]]:
    """Clouds in which strays count as nothing, as `as_weights` has it for clouds in memory."""
    reach = STRAY * max(summary.extent for summary in summaries)
    if not any(max((s.high - s.median).max(), (s.median - s.low).max()) > reach for s in summaries):
        return clouds, summaries
    near: PerCloud[Source] = clouds.map_keep(
        without_strays, [s.median for s in summaries], shared=(reach,)
    )
    return near, near.map(Summary.of)


def _spooled(path: Path, scratch: Path, number: int) -> list[tuple[str, OnDisk]]:
    """The scans of a file, by name, stored anew without the rays that met nothing."""
    blocks = (block.measured() for block in cloud_files.blocks(path, ROWS))
    return [
        (
            name,
            OnDisk.write(
                scratch / f"{number}-{i}",
                (InMemory(scan.points, None, scan.numeric_attributes()) for scan in scans),
            ),
        )
        for i, (name, scans) in enumerate(groupby(blocks, key=lambda scan: scan.name))
    ]


def _check(cloud: OnDisk, name: str) -> None:
    """Refuse what `as_clouds` refuses, from a look at all points and a closer one at some, the
    outermost among them.
    """
    bad, first, seen = 0, "", 0
    outermost = np.zeros((0, cloud.shape[1]))
    for block in cloud.blocks():
        rows = np.flatnonzero(~np.isfinite(block.points).all(1))
        if len(rows) and not bad:
            first = f"found {block.points[rows[0]].tolist()} at point {seen + rows[0]}"
        bad, seen = bad + len(rows), seen + len(block.points)
        both = np.concatenate([outermost, block.points])
        outermost = both[[*both.argmin(0), *both.argmax(0)]]
    if bad:
        raise InputError(
            f"{name}: expected finite coordinates, {first} ({bad} such points of {seen}); remove"
            " them first"
        )
    few = cloud.take(slice(None, None, max(1, seen // SAMPLE))).points
    as_cloud(np.concatenate([few, outermost]) if seen > SAMPLE else few, name)


def _ready(client: Client) -> Client:
    """The client, if its workers have coframe as it is here."""
    dask = optional("dask", "cluster", "clusters")
    # tasks that hold rows of points are no graphs
    dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"})
    if not client.nthreads():
        raise InputError("cluster: expected a cluster with workers, found none")
    try:
        found = client.run(_version)
    except Exception as error:
        raise InputError(
            f"cluster: expected workers that can import coframe, found {error!r}"
        ) from None
    for worker, version in found.items():
        if version != _version():
            raise InputError(
                f"cluster: expected coframe {_version()} on every worker, found {version} on"
                f" {worker}; install the same version there"
            )
    return client


# What workers do.


def _version() -> str:
    from importlib.metadata import version

    return version("coframe")


def _read(paths: list[str]) -> list[list[tuple[str, InMemory]]]:
    """The scans of each file, by name."""
    scans = [[scan.measured() for scan in cloud_files.read_all(path)] for path in paths]
    return [
        [
            (scan.name, InMemory(as_cloud(scan.points, path), None, scan.numeric_attributes()))
            for scan in several
        ]
        for path, several in zip(paths, scans, strict=True)
    ]


def _heads(files: list[list[tuple[str, InMemory]]]) -> list[list[str]]:
    return [[name for name, _ in scans] for scans in files]


def _bodies(files: list[list[tuple[str, InMemory]]]) -> list[InMemory]:
    return [cloud for scans in files for _, cloud in scans]

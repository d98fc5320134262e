# SPDX-License-Identifier: MIT
"""LAS and LAZ, the formats of surveys."""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from coframe import geometry
from coframe.errors import optional
from coframe.io.files import atomic, foreign
from coframe.io.scan import Scan, joined, points_in_space
from coframe.types import Array

# [size] Points per block.
ROWS = 1_000_000
# [size, bytes] Block of points, at most.
LARGEST_BLOCK = 1 << 27
# [format] Share of the extent: step of the coordinates where the file does not say it.
STEP = 1e-9
# [limit] Points per byte that a LAZ file may promise; those that are all alike take a byte for 150.
COMPRESSION = 1000
# [format] Coordinates are 32-bit integers.
LARGEST = 2**31 - 1
# [format] LAZ compressor of point formats 6 and later: chunks of layers, whose lengths follow the
# first point.
LAYERED = 3
# [format] Kinds of items from this one on are compressed in layers.
LAYERED_KINDS = 10
# [format] Layers of an item by its kind: point, colour, colour and infrared, wave packet.
LAYERS = {10: 9, 11: 1, 12: 2, 13: 1}
# [format] The kind of extra bytes, which have one layer a byte.
BYTES = 14
# [format] Bytes of an item by its kind, old and new.
ITEMS = {6: 20, 7: 8, 8: 6, 9: 29, 10: 30, 11: 6, 12: 8, 13: 29}


def count(path: str | os.PathLike[str]) -> int:
    """The points that a file promises."""
    with open(path, "rb") as file:
        head = file.read(255)
    (few,) = struct.unpack_from("<I", head, 107)
    late = head[25] >= 4 and len(head) == 255  # version 1.4
    return max(int(few), int(struct.unpack_from("<Q", head, 247)[0]) if late else 0)


def read_scan(path: str | os.PathLike[str]) -> Scan:
    """All points with colours, intensity and the other dimensions of the file."""
    scans = list(blocks(path))
    if not scans:
        raise ValueError("it has no points")
    return joined(scans)


def blocks(path: str | os.PathLike[str], rows: int = ROWS) -> Iterator[Scan]:
    """The points, so many at a time: a header that promises more than the file holds costs no
    memory.
    """
    laspy = _laspy()
    deep: bool | None = None
    with foreign(), laspy.open(_checked(path), read_evlrs=False) as reader:
        _check_chunks(path, reader)
        for points in reader.chunk_iterator(
            max(1, min(rows, LARGEST_BLOCK // max(reader.header.point_format.size, 1)))
        ):
            record = laspy.ScaleAwarePointRecord(
                points.array, points.point_format, reader.header.scales, reader.header.offsets
            )
            # 16 bits by the standard, but many programs write bytes
            if deep is None and "red" in record.array.dtype.names:
                deep = max(int(record.array[name].max()) for name in ("red", "green", "blue")) > 255
            yield _scan(record, deep, path)


def write_scan(path: str | os.PathLike[str], scan: Scan, wkt: str = "") -> None:
    """A new file, LAZ by its suffix.

    Coordinates are stored to a billionth of the extent, or as finely as 32 bits allow. `wkt` is the
    reference system of the points.
    """
    laspy = _laspy()
    points = points_in_space(scan.points)
    header = laspy.LasHeader(point_format=7 if scan.colours is not None else 6, version="1.4")
    if len(scan):
        low, high = points.min(0), points.max(0)
        header.offsets = np.floor((low + high) / 2)
        least = np.maximum(np.abs(high - header.offsets), np.abs(low - header.offsets)) / LARGEST
        header.scales = np.maximum(
            10.0 ** np.ceil(np.log10(np.maximum(least, 1e-300))), STEP * (high - low).max() or STEP
        )
    columns = dict(scan.columns)
    if scan.normals is not None:
        columns |= dict(zip(("nx", "ny", "nz"), scan.normals.T, strict=True))
    for name, column in columns.items():
        if (
            name not in header.point_format.dimension_names
            and column.dtype.kind in "fiu"
            and len(name.encode()) < 32
        ):
            header.add_extra_dim(
                laspy.ExtraBytesParams(name=name, type=column.dtype.newbyteorder("="))
            )
    if wkt:
        header.vlrs.append(laspy.vlrs.known.WktCoordinateSystemVlr(wkt))
        header.global_encoding.wkt = True
    las = laspy.LasData(header)
    las.x, las.y, las.z = points.T
    if scan.colours is not None:
        las.red, las.green, las.blue = scan.colours.astype(np.uint16).T * 257
    if scan.intensity is not None:
        las.intensity = _sixteen_bits(scan.intensity)
    for name, column in columns.items():
        if name in header.point_format.dimension_names:
            las[name] = column
    _write(las, path)


def move(
    source: str | os.PathLike[str], target: str | os.PathLike[str], pose: Float[Array, "4 4"]
) -> None:
    """A copy with the points moved, in the source's own version, format, scale and, where the
    points still fit, offset.
    """
    laspy = _laspy()
    with foreign():
        with laspy.open(_checked(source)) as reader:
            _check_chunks(source, reader)
            las = reader.read()
        points = geometry.transform(pose, np.stack([las.x, las.y, las.z], 1).astype(float))
        if len(points):
            scales, offsets = np.array(las.header.scales), np.array(las.header.offsets)
            reach = (
                np.maximum(np.abs(points.min(0) - offsets), np.abs(points.max(0) - offsets))
                / scales
            )
            offsets = np.where(reach > LARGEST, np.floor(points.mean(0)), offsets)
            # `change_scaling` would first move the old points there
            las.header.offsets = las.points.offsets = offsets
            las.x, las.y, las.z = points.T
    _write(las, target)


def _laspy() -> Any:
    return optional("laspy", "las", "LAS and LAZ files")


def _checked(path: str | os.PathLike[str]) -> str:
    """The path of a file whose header promises no more than it can hold; laspy believes it, and
    would read or wait for ever.
    """
    size = os.stat(path).st_size
    with open(path, "rb") as file:
        start = file.read(375).ljust(375, b"\0")
    header, points, records, form, length, old = struct.unpack_from("<HIIBHI", start, 94)
    late, extended, new = struct.unpack_from("<QIQ", start, 235)
    modern = start[24:26] >= b"\x01\x04"
    count = max(old, new) if modern else old
    if (
        not header <= points <= size
        or records * 54 > points - header
        or (modern and extended * 60 > max(0, size - late))
    ):
        raise ValueError("its header promises records that it does not hold")
    if (count * length > size - points) if form < 128 else (count > COMPRESSION * size):
        raise ValueError(f"its header promises {count} points, and it is {size} bytes long")
    if form >= 128 and _chunks(path, points, size) > size:
        raise ValueError("its table of chunks is damaged")
    return os.fspath(path)


def _chunks(path: str | os.PathLike[str], points: int, size: int) -> int:
    """How many chunks a LAZ file says it has; lazrs makes room for them all and ends the process
    when there is none.
    """
    with open(path, "rb") as file:
        file.seek(points)
        (start,) = struct.unpack("<q", file.read(8))
        if start == -1:  # a writer that could not go back left it at the end
            file.seek(size - 8)
            (start,) = struct.unpack("<q", file.read(8))
        file.seek(min(max(start, 0), size))
        return int(struct.unpack("<II", file.read(8))[1])


def _check_chunks(path: str | os.PathLike[str], reader: Any) -> None:
    """Refuse lengths inside of compressed points that the file does not have: lazrs makes room for
    them before it looks.

    On several threads it makes room for a whole chunk, too: where chunks are large, one thread
    reads point after point.
    """
    header = reader.header
    if not header.are_points_compressed:
        return
    lazrs = optional("lazrs", "las", "LAZ files")
    record = header.vlrs.get("LasZipVlr")[0].record_data
    vlr = lazrs.LazVlr(record)
    length = header.point_format.size
    compressor, (items,) = struct.unpack_from("<H", record)[0], struct.unpack_from("<H", record, 32)
    kinds = [struct.unpack_from("<HH", record, 34 + 6 * i) for i in range(items)]
    if any(size != ITEMS.get(kind, size) for kind, size in kinds):
        raise ValueError("the items of its points have other sizes than their kinds")
    # lazrs goes by the items
    if (compressor == LAYERED) != any(kind >= LAYERED_KINDS for kind, _ in kinds):
        raise ValueError("the items of its points are of another compressor")
    layers = sum(size if kind == BYTES else LAYERS.get(kind, 0) for kind, size in kinds)
    with open(path, "rb") as file:
        file.seek(header.offset_to_point_data)
        chunks = lazrs.read_chunk_table(file, vlr) or []
        position = file.tell()
        left = os.stat(path).st_size - position
        held, taken = sum(count for count, _ in chunks), sum(size for _, size in chunks)
        if vlr.item_size() != length or held < header.point_count or taken > left:
            raise ValueError("its table of chunks is damaged")
        if max((count for count, _ in chunks), default=0) * length > LARGEST_BLOCK:
            reader.laz_backend = _laspy().LazBackend.Lazrs
        for _, size in chunks if compressor == LAYERED else ():
            file.seek(position + length + 4)
            lengths = np.frombuffer(file.read(4 * layers), "<u4")
            if len(lengths) < layers or length + 4 + 4 * layers + sum(lengths.tolist()) != size:
                raise ValueError("a chunk of its points is damaged")
            position += size


def _scan(record: Any, deep: bool | None, path: str | os.PathLike[str]) -> Scan:
    names = list(record.point_format.dimension_names)
    skipped = {"X", "Y", "Z", "red", "green", "blue", "intensity"}
    colours = None
    if deep is not None:
        colours = np.stack(
            [np.asarray(record[name]) >> (8 if deep else 0) for name in ("red", "green", "blue")], 1
        ).astype(np.uint8)
    return Scan(
        points=np.stack(
            [np.asarray(record.x), np.asarray(record.y), np.asarray(record.z)], 1
        ).astype(np.float64),
        colours=colours,
        intensity=np.asarray(record["intensity"]) if "intensity" in names else None,
        columns={
            name: column
            for name in names
            if name not in skipped and (column := np.asarray(record[name])).ndim == 1
        },
        name=Path(path).stem,
    )


def _sixteen_bits(intensity: Array) -> Array:
    """Intensity is a 16-bit number in LAS: as it is where it fits, fractions of 1 stretched."""
    values = np.nan_to_num(np.asarray(intensity, float))
    if values.size and values.min() >= 0 and values.max() <= 1 and intensity.dtype.kind == "f":
        values = values * 65535
    return np.asarray(np.rint(np.clip(values, 0, 65535)), np.uint16)


def _write(las: Any, path: str | os.PathLike[str]) -> None:
    with atomic(path) as temporary, temporary.open("wb") as file:
        las.write(file, do_compress=Path(path).suffix.lower() == ".laz")

# SPDX-License-Identifier: MIT
"""Rooms, corridors, stairs, facades, halls, streets and terrain, with the stations of a sensor in
them, in metres.

A seed makes another place: sizes, furniture and positions are drawn from the generator. Places
that repeat themselves (`unique=False`) look the same from stations a period apart, so that nothing
but the start poses says which of several alignments is the true one.
"""

from coframe.data.simulate.indoors import corridor, hall, room, room_path, stairs
from coframe.data.simulate.outdoors import facade, street, street_path, terrain
from coframe.data.simulate.place import Place, scanned

__all__ = [
    "Place",
    "corridor",
    "facade",
    "hall",
    "room",
    "room_path",
    "scanned",
    "stairs",
    "street",
    "street_path",
    "terrain",
]

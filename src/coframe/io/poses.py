# SPDX-License-Identifier: MIT
"""Pose files: our own `coframe-poses/1`, and those of other programs.

A pose carries its cloud into the common frame, x = R v + t, whatever a format keeps. All numbers
are written with every digit; formats with quaternions give a rotation back to about 1e-16.
"""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from jaxtyping import Float
from scipy.spatial.transform import Rotation

from coframe import geometry
from coframe.errors import InputError, one_line, visible
from coframe.io import e57, naming, ptx
from coframe.io.files import as_json, as_path, atomic, file_names, read_small, regular
from coframe.io.scan import Scan, in_space
from coframe.io.table import table
from coframe.types import Array, Pose, Poses

# [format] Written into poses.json.
FORMAT = "coframe-poses/1"
# [format] What `export` writes, with the suffix of each.
FORMATS = {
    "json": ".json",
    "matrix": "",
    "aln": ".aln",
    "mlp": ".mlp",
    "conf": ".conf",
    "tum": ".txt",
    "kitti": ".txt",
    "open3d": ".json",
    "e57": ".e57",
    "ptx": ".ptx",
    "log": ".log",
}
# [format] How E57 files begin.
E57 = b"ASTM-E57"
# [format] And PTX files: columns, rows, and a position.
PTX = re.compile(rb"\s*\d+\s*[\r\n]\s*\d+\s*[\r\n]\s*[^\s#]+[ \t]+\S+[ \t]+\S+\s*[\r\n]")
# [limit] Difference of a quaternion's length from 1, at most.
UNIT_TOLERANCE = 1e-2
NamedPoses = dict[str, Pose]


def write(
    path: str | os.PathLike[str],
    names: Sequence[str],
    poses: Poses,
    *,
    details: Sequence[Mapping[str, Any]] | None = None,
    **header: Any,
) -> None:
    """Write poses as `coframe-poses/1`, with all digits.

    Parameters
    ----------
    path : path
    names : sequence of str
    poses : array (M, D+1, D+1)
        In user coordinates.
    details : sequence of mappings, optional
        More keys of each cloud.
    **header
        More keys of the file.

    Examples
    --------
    >>> coframe.io.poses.write("poses.json", ["a", "b"], poses)
    """
    clouds = [
        {"name": name, "pose": pose.tolist(), **(details[j] if details else {})}
        for j, (name, pose) in enumerate(zip(names, poses, strict=True))
    ]
    with atomic(path) as temporary:
        temporary.write_text(
            as_json({"format": FORMAT, "clouds": clouds, **header}) + "\n", encoding="utf-8"
        )


def export(
    path: str | os.PathLike[str],
    form: str,
    names: Sequence[str],
    poses: Poses,
    *,
    files: Sequence[str] | None = None,
) -> Path:
    """Write poses in the format of another program; poses of the plane become poses of space.

    Parameters
    ----------
    path : path
        A file; of `matrix` a folder with one file per cloud, because CloudCompare takes one matrix
        at a time.
    form : str
        One of `FORMATS`.
    names : sequence of str
    poses : array (M, D+1, D+1)
    files : sequence of str, optional
        The clouds' files, for formats that refer to them (aln, mlp, conf); the names by default.

    Returns
    -------
    Path
        What was written.

    Raises
    ------
    InputError
        If there is no such format, or it cannot hold a name.
    """
    if form not in FORMATS:
        raise InputError(f"format: expected one of {', '.join(FORMATS)}, found {form!r}")
    path = as_path(path)
    if len(names) != len(poses):
        raise InputError(f"names: expected {len(poses)}, one for each pose, found {len(names)}")
    if form == "json":
        write(path, names, poses)
        return path
    in_3d = np.array([in_space(pose) for pose in poses]).reshape(-1, 4, 4)
    if form == "matrix":
        path.mkdir(parents=True, exist_ok=True)
        for name, T in zip(file_names(names, [".txt"] * len(names)), in_3d, strict=True):
            _write_text(path / name, _rows(T))
    elif form in ("e57", "ptx"):
        one = np.ones((1, 3))
        scans = [Scan(one, pose=T, name=name) for name, T in zip(names, in_3d, strict=True)]
        (e57 if form == "e57" else ptx).write_scans(path, scans)
    else:
        _write_text(path, WRITERS[form](names, files or names, in_3d))
    return path


def read(path: str | os.PathLike[str]) -> NamedPoses:
    """Read poses from a file in any of the formats, or from a folder of 4 x 4 matrices.

    The content decides which format it is. Formats without names (KITTI, a list of matrices) number
    their poses from 0.

    Parameters
    ----------
    path : path

    Returns
    -------
    dict of str to array (D+1, D+1)

    Raises
    ------
    InputError
        If it holds no poses, or some that are not rigid.

    Examples
    --------
    >>> coframe.io.poses.read("poses.json")["scan0"]
    """
    path = as_path(path)
    try:
        if path.is_dir():
            files = sorted(
                file for file in path.iterdir() if file.suffix.lower() in (".txt", ".mat", ".pose")
            )
            poses = {file.stem: next(iter(read(file).values())) for file in files}
        else:
            poses = _read_file(path)
        if not poses:
            raise ValueError("it has no poses")
        return {str(name): _checked(str(name), pose) for name, pose in poses.items()}
    except OSError as error:
        raise InputError(
            f"{path}: expected a file with poses, found nothing that can be read ({error.strerror})"
        ) from None
    except BAD as error:
        if isinstance(error, InputError):
            raise
        known = f"{FORMAT} or {', '.join(name for name in FORMATS if name != 'json')}"
        raise InputError(
            f"{path}: expected poses as {known}, found something else ({one_line(error)})"
        ) from None


def read_for(path: str | os.PathLike[str], names: Sequence[str]) -> Poses:
    """Read the poses of these clouds, in their order.

    A cloud's pose is the one of its name, or of the same file name with another folder or suffix. A
    file that only numbers its poses must have one for each cloud, and they are used in order.

    Parameters
    ----------
    path : path
    names : sequence of str
        Of the clouds.

    Returns
    -------
    array (M, D+1, D+1)

    Raises
    ------
    InputError
        If a cloud has no pose or several.
    """
    known = read(path)
    if len(known) == len(names) and only_numbered(known, names):
        return np.array(list(known.values()))
    return choose(path, known, names)


def only_numbered(known: Mapping[str, Pose], names: Sequence[str]) -> bool:
    """Whether poses have numbers from 0 instead of names of clouds."""
    return list(known) == [str(j) for j in range(len(known))] and not set(names) & set(known)


def choose(path: str | os.PathLike[str], known: Mapping[str, Pose], names: Sequence[str]) -> Poses:
    """The poses of these clouds, by their names; `path`: of the file that has them."""
    known = {visible(name): pose for name, pose in known.items()}
    names = [visible(name) for name in names]
    keys = list(known)
    chosen: dict[str, str] = {}
    for name in names:
        alike = [keys[j] for j in naming.candidates(keys, name)]
        alike = alike or [key for key in keys if _last(key) == _last(name)]
        if len(alike) != 1:
            found = f"several: {', '.join(alike)}" if alike else f"poses for {', '.join(keys)}"
            raise InputError(
                f"{path}: expected a pose for {name}, found {found[:300]}; name"
                " them as the clouds are named"
            )
        if alike[0] in chosen:
            raise InputError(
                f"{path}: expected a pose for each cloud, found one, {alike[0]}, for"
                f" {chosen[alike[0]]} and {name}; name them as the clouds are named"
            )
        chosen[alike[0]] = name
    poses = [known[key] for key in chosen]
    if len({pose.shape for pose in poses}) > 1:
        raise InputError(
            f"{path}: expected poses of one size, found 3 x 3 and 4 x 4; leave one kind out"
        )
    return np.array(poses)


BAD = (
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    AttributeError,
    OverflowError,
    RecursionError,
    ElementTree.ParseError,
)


def _last(name: str) -> str:
    return "".join(naming.parts(name)[-1:])


def _checked(name: str, pose: Any) -> Pose:
    try:
        pose = np.asarray(pose, float)
    except (TypeError, ValueError):
        pose = np.empty(0)
    if pose.shape not in ((3, 3), (4, 4)) or not np.isfinite(pose).all():
        raise ValueError(f"the pose of {name} is not a finite 4 x 4 matrix")
    if not geometry.is_rigid(pose):
        raise ValueError(f"the pose of {name} is not a rotation and a translation")
    return pose


def _read_file(path: Path) -> dict[str, Any]:
    with regular(path) as file:
        begin = file.read(1000)
    if begin.startswith(E57):
        return dict(e57.read_poses(path))
    if PTX.match(begin):
        return dict(ptx.read_poses(path))
    text = read_small(path).decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    start = text.lstrip()
    if start.startswith(("{", "[")):
        return _of_json(json.loads(text))
    if start.startswith("<"):
        return _of_mlp(text)
    if re.search(r"^(bmesh|mesh|camera)\s", text, re.MULTILINE):
        return _of_conf(text)
    if re.match(r"\s*\d+\s*\n[^\n]+\n\s*#", text):
        return _of_aln(text)
    if re.match(r"\s*(\d+[ \t]+){2}-?\d+[ \t]*\n([^\n]+\n){4}", text):
        return _of_log(text)
    return _of_table(text, path.stem)


def _of_json(content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ValueError("it is a list; expected an object with names and matrices")
    if content and "format" not in content and "class_name" not in content:
        return dict(content)
    if content.get("class_name") == "PoseGraph":
        nodes = content["nodes"] or []
        return {
            str(node.get("name", j)): np.array(node["pose"], float).reshape(4, 4).T
            for j, node in enumerate(nodes)
        }
    if content["format"] != FORMAT:
        raise ValueError(f"its format is {content['format']!r}")
    poses = {str(cloud["name"]): cloud["pose"] for cloud in content["clouds"]}
    if len(poses) < len(content["clouds"]):
        raise ValueError("it has two poses of one name")
    return poses


def _of_log(text: str) -> NamedPoses:
    """Redwood's and 3DMatch's trajectories: a line of three whole numbers, then a matrix.

    The first number counts the poses.
    """
    lines = [line.split() for line in text.split("\n") if line.strip()]
    if len(lines) % 5:
        raise ValueError("its matrices are not of four lines each, below a line of three numbers")
    poses = {}
    for j in range(0, len(lines), 5):
        numbers = [int(word) for word in lines[j]]
        if len(numbers) != 3:
            raise ValueError("a line above a matrix has not three whole numbers")
        if not (str(numbers[0]) not in poses and numbers[0] == numbers[1]):
            raise ValueError(
                "it is a list of pairs of clouds or has two poses of one number, not the poses of"
                " clouds"
            )
        poses[str(numbers[0])] = np.array(lines[j + 1 : j + 5], float)
    return poses


def _of_mlp(text: str) -> NamedPoses:
    if "<!ENTITY" in text:
        raise ValueError("it defines entities")
    poses = {}
    for mesh in ElementTree.fromstring(text).iter("MLMesh"):
        matrix = mesh.findtext("MLMatrix44") or ""
        poses[mesh.get("label") or mesh.get("filename") or ""] = np.array(
            matrix.split(), float
        ).reshape(4, 4)
    return poses


def _of_aln(text: str) -> NamedPoses:
    lines = [
        line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")
    ]
    count, poses = int(lines[0]), {}
    for j in range(count):
        name, *rows = lines[1 + 5 * j : 6 + 5 * j]
        poses[name.strip()] = np.array([row.split() for row in rows], float)
    return poses


def _of_conf(text: str) -> NamedPoses:
    """Stanford's quaternions turn the frame, not the points."""
    rows = [line.split() for line in text.split("\n") if line.startswith("bmesh")]
    return {
        row[1]: geometry.inverse(_of_quaternion(np.zeros(3), row[5:9])) + _shift(row[2:5])
        for row in rows
    }


def _shift(words: Sequence[str]) -> Float[Array, "4 4"]:
    T = np.zeros((4, 4))
    T[:3, 3] = np.array(words, float)
    return T


def _of_quaternion(translation: Array, quaternion: Sequence[str] | Array) -> Float[Array, "4 4"]:
    q = np.array(quaternion, float)
    if (
        q.shape != (4,)
        or not np.isfinite(q).all()
        or not abs(np.linalg.norm(q) - 1) < UNIT_TOLERANCE
    ):
        raise ValueError("a quaternion is not of length 1")
    return geometry.pose(Rotation.from_quat(q).as_matrix(), np.asarray(translation, float))


def _of_table(text: str, stem: str) -> NamedPoses:
    """Rows of 8 numbers are TUM's, of 12 KITTI's, of 16 whole matrices; of 4 (or 3), matrices one
    below the other.
    """
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    rows = [line for line in lines if line[0] not in "#%"]
    if not rows:
        raise ValueError("it has no numbers")
    fields = [re.split(r"[\s,]+", row) for row in rows]
    C = len(fields[0])
    values, _ = table("\n".join(rows).encode(), C)
    if C == 8:
        names = _tum_names(lines, [row[0] for row in fields])
        return {
            name: _of_quaternion(row[1:4], row[4:]) for name, row in zip(names, values, strict=True)
        }
    if C == 12:
        matrices = np.concatenate(
            [values.reshape(-1, 3, 4), np.tile([[[0.0, 0, 0, 1]]], (len(values), 1, 1))], 1
        )
    elif C in (3, 4, 16):
        D1 = 4 if C == 16 else C
        matrices = values.reshape(-1, D1, D1)
    else:
        raise ValueError(f"rows of {C} numbers are no poses")
    if len(matrices) == 1 and C != 12:
        return {stem: matrices[0]}
    return {str(j): matrix for j, matrix in enumerate(matrices)}


def _tum_names(lines: Sequence[str], stamps: Sequence[str]) -> list[str]:
    """Time stamps, or the names that our own files have in a comment above each row."""
    named = [
        above[2:]
        for above, line in pairwise(lines)
        if above.startswith("# ") and line[0] not in "#%"
    ]
    names = named if len(named) == len(stamps) > 1 else list(stamps)
    return names if len(set(names)) == len(names) else [str(j) for j in range(len(names))]


def _write_text(path: Path, text: str) -> None:
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def _numbers(values: Array) -> str:
    return " ".join(repr(float(value)) for value in np.ravel(values))


def _rows(T: Float[Array, "4 4"]) -> str:
    return "".join(_numbers(row) + "\n" for row in T)


def _plain(names: Sequence[str], *, spaces: bool) -> None:
    """Names become part of a text file here: they must not break its lines, nor, in some formats,
    its words.
    """
    for name in names:
        if (
            not name.strip()
            or not name.isprintable()
            or (not spaces and any(c.isspace() for c in name))
        ):
            raise InputError(
                f"names: expected names {'on one line' if spaces else 'without white space'} in"
                f" this format, found {name!r}"
            )


def _quaternion(T: Float[Array, "4 4"]) -> Float[Array, " 4"]:
    return np.asarray(Rotation.from_matrix(T[:3, :3]).as_quat(canonical=True))


def _as_aln(names: Sequence[str], files: Sequence[str], poses: Array) -> str:
    _plain(files, spaces=True)
    parts = [f"{file}\n#\n{_rows(T)}" for file, T in zip(files, poses, strict=True)]
    return f"{len(files)}\n{''.join(parts)}0\n"


def _as_mlp(names: Sequence[str], files: Sequence[str], poses: Array) -> str:
    for each in (names, files):
        _plain(each, spaces=True)
    project = ElementTree.Element("MeshLabProject")
    group = ElementTree.SubElement(project, "MeshGroup")
    for name, file, T in zip(names, files, poses, strict=True):
        mesh = ElementTree.SubElement(group, "MLMesh", label=name, filename=file)
        ElementTree.SubElement(mesh, "MLMatrix44").text = f"\n{_rows(T)}"
    ElementTree.SubElement(project, "RasterGroup")
    ElementTree.indent(project, " ")
    return f"<!DOCTYPE MeshLabDocument>\n{ElementTree.tostring(project, encoding='unicode')}\n"


def _as_conf(names: Sequence[str], files: Sequence[str], poses: Array) -> str:
    _plain(files, spaces=False)
    turned = [_quaternion(geometry.inverse(T)) for T in poses]
    return "".join(
        f"bmesh {f} {_numbers(T[:3, 3])} {_numbers(q)}\n"
        for f, T, q in zip(files, poses, turned, strict=True)
    )


def _as_tum(names: Sequence[str], files: Sequence[str], poses: Array) -> str:
    """Names that are time stamps stay; others become comments above their row, and the stamps
    count.
    """
    stamps = all(re.fullmatch(r"\d+(\.\d+)?", name) for name in names)
    if not stamps:
        _plain(names, spaces=True)
    heads = [name if stamps else f"# {name}\n{j}" for j, name in enumerate(names)]
    return "".join(
        f"{h} {_numbers(T[:3, 3])} {_numbers(_quaternion(T))}\n"
        for h, T in zip(heads, poses, strict=True)
    )


def _as_kitti(names: Sequence[str], files: Sequence[str], poses: Array) -> str:
    return "".join(_numbers(T[:3]) + "\n" for T in poses)


def _as_log(names: Sequence[str], files: Sequence[str], poses: Array) -> str:
    return "".join(f"{j} {j} {j + 1}\n{_rows(T)}" for j, T in enumerate(poses))


def _as_open3d(names: Sequence[str], files: Sequence[str], poses: Array) -> str:
    """Matrices by columns.

    Open3D passes over the names, and warns of a graph without edges: each pose is tied to the next.
    """
    version = {"version_major": 1, "version_minor": 0}
    nodes = [
        {"class_name": "PoseGraphNode", "name": name, "pose": T.T.ravel().tolist(), **version}
        for name, T in zip(names, poses, strict=True)
    ]
    edges = [
        {
            "class_name": "PoseGraphEdge",
            "confidence": 1.0,
            "information": np.eye(6).ravel().tolist(),
            "source_node_id": j,
            "target_node_id": j + 1,
            "transformation": (geometry.inverse(target) @ source).T.ravel().tolist(),
            "uncertain": False,
            **version,
        }
        for j, (source, target) in enumerate(pairwise(poses))
    ]
    return as_json({"class_name": "PoseGraph", "edges": edges, "nodes": nodes, **version}) + "\n"


WRITERS: dict[str, Callable[[Sequence[str], Sequence[str], Array], str]] = {
    "aln": _as_aln,
    "mlp": _as_mlp,
    "conf": _as_conf,
    "tum": _as_tum,
    "kitti": _as_kitti,
    "open3d": _as_open3d,
    "log": _as_log,
}

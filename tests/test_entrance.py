# SPDX-License-Identifier: MIT
"""What users and strangers may hand in: odd arrays, odd types, odd names, odd files.

It is used as it is meant, or refused in one sentence that says what to pass.
"""

import io
import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scenes import unchecked, views

import coframe
from coframe import Checkpoint, InputError, Options, PosePrior, TrackOptions, geometry, paper
from coframe.evaluate.files import evaluate_poses, evaluate_trajectory
from coframe.io import clouds, files, images, npz, ply, trajectory
from coframe.io import poses as pose_files
from coframe.report import run
from coframe.sequence.recipe import SEQUENCE

resource = pytest.importorskip("resource", reason="needs limits, pipes and signals of POSIX")
QUICK = Options(components=20, points=100, iterations=2, start="identity")
CLOUDS = [np.random.default_rng(j).normal(size=(30, 3)) for j in range(3)]
IDENTITY = geometry.identity(3, 3)


def register(clouds: Any, **arguments: Any) -> coframe.Registration:
    with unchecked():
        return coframe.register(clouds, **({"options": QUICK} | arguments))


@pytest.fixture(scope="module")
def result() -> coframe.Registration:
    return register(CLOUDS)


def judged(clouds: Any, **arguments: Any) -> coframe.Registration:
    """The quickest way through the entrance and out again."""
    with unchecked():
        return coframe.judge(clouds, IDENTITY, options=QUICK, release=False, **arguments)


def refused(*words: str, call: Callable[[], object]) -> None:
    """One sentence with these words, and nothing else."""
    with unchecked(), pytest.raises(InputError) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)


# Arrays


def masked(array: np.ndarray) -> np.ma.MaskedArray:
    mask = np.zeros(array.shape, bool)
    mask.flat[1] = True
    return np.ma.masked_array(array, mask)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("cloud 1", {"clouds": [CLOUDS[0], masked(CLOUDS[1]), CLOUDS[2]]}),
        ("cloud 0", {"clouds": masked(np.array(CLOUDS))}),
        ("poses", {"poses": masked(IDENTITY)}),
        ("poses", {"poses": [np.eye(4), masked(np.eye(4)), np.eye(4)]}),
        ("weights of cloud 0", {"weights": [masked(np.ones(30)), np.ones(30), np.ones(30)]}),
        ("priors", {"priors": [PosePrior(0, masked(np.eye(4)), np.eye(6))]}),
        ("priors", {"priors": [PosePrior(0, np.eye(4), masked(np.eye(6)))]}),
        ("priors", {"priors": [PosePrior(0, np.eye(4), np.eye(6), masked(np.zeros(3)))]}),
    ],
)
def test_masked_values_are_refused(name: str, arguments: dict[str, Any]) -> None:
    refused(
        f"{name}: expected", "masked", call=lambda: register(**({"clouds": CLOUDS} | arguments))
    )


def test_masked_points_are_refused_wherever_clouds_are_given(result: coframe.Registration) -> None:
    bad = [CLOUDS[0], masked(CLOUDS[1]), CLOUDS[2]]
    words = ("masked", "[~", "mask.any(1)]")
    refused("cloud 1", *words, call=lambda: coframe.judge(bad, IDENTITY, options=QUICK))
    refused("cloud 1", *words, call=lambda: coframe.compare(bad, IDENTITY))
    refused("cloud 1", *words, call=lambda: paper.batch(bad, np.zeros((4, 3))))
    refused("frame 1", *words, call=lambda: coframe.track(bad))
    refused("cloud 3", *words, call=lambda: coframe.extend(result, bad[1]))
    refused("pose", "masked", call=lambda: coframe.extend(result, CLOUDS[0], masked(np.eye(4))))
    refused("means", "masked", call=lambda: paper.batch(CLOUDS, masked(np.ones((4, 3)))))


def test_a_mask_that_hides_nothing_changes_nothing() -> None:
    open_masks = [np.ma.masked_array(cloud, np.zeros(cloud.shape, bool)) for cloud in CLOUDS]
    assert np.array_equal(judged(open_masks).mixture.means, judged(CLOUDS).mixture.means)


class Tensor:
    """An array of another library, as numpy sees it."""

    def __init__(self, values: np.ndarray, error: Exception | None = None) -> None:
        self.values, self.error = values, error

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if self.error is not None:
            raise self.error
        return np.array(self.values, dtype)


def with_columns(cloud: np.ndarray, names: str) -> np.ndarray:
    table = np.zeros(len(cloud), [(name, "f8") for name in names])
    for axis, values in zip("xyz", cloud.T, strict=True):
        table[axis] = values
    return table


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(np.asmatrix, marks=pytest.mark.filterwarnings("ignore:the matrix subclass")),
        Tensor,
        np.ndarray.tolist,
        lambda cloud: with_columns(cloud, "xyz"),
        lambda cloud: with_columns(cloud, "azyx"),
    ],
    ids=["matrix", "tensor", "list", "structured", "structured, other order"],
)
def test_points_in_other_forms_are_the_same_points(form: Callable[[np.ndarray], Any]) -> None:
    assert np.array_equal(
        judged(list(map(form, CLOUDS))).mixture.means, judged(CLOUDS).mixture.means
    )


@pytest.mark.parametrize("columns", ["xyz", "zyx", "axyzb"])
def test_the_columns_of_a_table_are_found_by_name(columns: str) -> None:
    pandas = pytest.importorskip("pandas")
    tables = [pandas.DataFrame(with_columns(cloud, columns)) for cloud in CLOUDS]
    assert np.array_equal(judged(tables).mixture.means, judged(CLOUDS).mixture.means)


def test_a_table_without_coordinates_is_refused() -> None:
    table = np.zeros(30, [("a", "f8"), ("b", "f8"), ("c", "f8")])
    refused("cloud 0", "x, y", "a, b, c", call=lambda: register([table, *CLOUDS]))


def test_what_another_library_raises_is_one_sentence() -> None:
    bad = Tensor(CLOUDS[0], RuntimeError("call detach()\nfirst"))
    refused("cloud 1", "Tensor", "call detach()", call=lambda: register([CLOUDS[0], bad]))
    refused("poses", "Tensor", call=lambda: register(CLOUDS, poses=bad))


@pytest.mark.parametrize("poses", [IDENTITY.astype(complex), IDENTITY.astype(str)])
def test_poses_that_are_no_real_numbers_are_refused(poses: np.ndarray) -> None:
    refused("poses: expected", call=lambda: register(CLOUDS, poses=poses))


# Names


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([1, 2, 3], ["strings", "1", "int"]),
        ([None, "b", "c"], ["strings", "NoneType"]),
        (["a"], ["3", "found 1"]),
        (["a", "b", "c", "d"], ["3", "found 4"]),
        ("abc", ["list", "str"]),
        (5, ["list", "int"]),
        (["a", "b", "a"], ["'a'", "0 and 2"]),
        (["a", "", "c"], ["empty", "1"]),
        (["a", " ", "c"], ["empty", "1"]),
        (["a\nb", "c", "d"], ["one line", "0"]),
        (["a", "b\0", "d"], ["one line", "1"]),
        (["a", "b", "\x1b[31m"], ["one line", "2"]),
    ],
)
def test_names_are_distinct_strings_one_for_each_cloud(names: Any, words: list[str]) -> None:
    for call in (
        lambda: register(CLOUDS, names=names),
        lambda: coframe.judge(CLOUDS, IDENTITY, names=names, options=QUICK),
        lambda: coframe.compare(CLOUDS, IDENTITY, names=names),
        lambda: paper.batch_with_defaults(CLOUDS, names=names),
    ):
        refused("names: expected", *words, call=call)


def test_names_of_files_are_counted_too(tmp_path: Path) -> None:
    files = [tmp_path / f"{j}.ply" for j in range(3)]
    for file, cloud in zip(files, CLOUDS, strict=True):
        ply.write(file, cloud)
    refused("names: expected 3", "found 2", call=lambda: register(files, names=["a", "b"]))
    refused(
        "names: expected 3",
        "found 2",
        call=lambda: register(files, names=["a", "b"], memory="2GB"),
    )
    assert judged(files, names=["a", "b", "c"]).names == ("a", "b", "c")


@pytest.mark.parametrize("name", [1, "", "a\nb", "cloud 0"])
def test_the_name_of_one_more_cloud(result: coframe.Registration, name: Any) -> None:
    refused("name: expected", call=lambda: coframe.extend(result, CLOUDS[0], name=name))
    spheres = paper.batch(CLOUDS, CLOUDS[0][:5], iterations=1)
    refused("name: expected", call=lambda: paper.integrate(spheres, CLOUDS[0], name=name))


def test_names_that_are_accepted_survive_on_disk(tmp_path: Path) -> None:
    names = ["a b", "\N{GREEK SMALL LETTER ALPHA}/b", "c.ply"]
    judged(CLOUDS, names=[np.str_(names[0]), *names[1:]]).save(tmp_path)
    assert coframe.load(tmp_path).names == tuple(names)


# Clouds of odd types


def test_a_dictionary_names_its_clouds(tmp_path: Path) -> None:
    named = judged(dict(zip("cab", CLOUDS, strict=True)))
    assert named.names == ("c", "a", "b")
    assert np.array_equal(named.mixture.means, judged(CLOUDS).mixture.means)
    files = {}
    for name, file, cloud in zip("cab", ["2.ply", "10.ply", "1.ply"], CLOUDS, strict=True):
        files[name] = tmp_path / file
        ply.write(files[name], cloud)
    named = judged(files)
    paths = {name: Path(path) for name, path in zip(named.names, named.files, strict=True)}
    assert paths == files
    for name, cloud in zip(named.names, named.clouds, strict=True):
        assert np.array_equal(cloud, CLOUDS["cab".index(name)])


def test_dictionaries_that_say_too_much_or_too_little(tmp_path: Path) -> None:
    clouds = dict(zip("abc", CLOUDS, strict=True))
    refused("names: expected", call=lambda: register(clouds, names=list("def")))
    refused("names: expected", "1", call=lambda: register({1: CLOUDS[0], 2: CLOUDS[1]}))
    refused("two clouds", call=lambda: register({}))
    for name in ("0.ply", "1.ply"):
        ply.write(tmp_path / name, CLOUDS[0])
    refused("a", "one file", call=lambda: register({"a": tmp_path, "b": tmp_path / "0.ply"}))
    pattern = f"{tmp_path}/*.ply"
    refused("a", "one file", call=lambda: register({"a": pattern, "b": tmp_path / "0.ply"}))


class Mesh:
    def __init__(self, vertices: Any) -> None:
        self.vertices = vertices


@pytest.mark.parametrize(
    ("clouds", "words"),
    [
        (5, ["list", "found int"]),
        (3.5, ["list", "found float"]),
        (None, ["list", "found NoneType"]),
        (object(), ["list", "found object"]),
        (b"scan.ply", ["list", "found bytes", "fsdecode"]),
        ([b"a.ply", b"b.ply"], ["cloud 0", "bytes", "fsdecode"]),
        ({1, 2}, ["list", "found set", "order"]),
        ({"a.ply", "b.ply"}, ["list", "found set", "order"]),
        ([(c for c in CLOUDS), (c for c in CLOUDS)], ["cloud 0", "generator"]),
        ([CLOUDS[0], "a.ply"], ["files or arrays", "both", "coframe.io.clouds.read"]),
        (["a.ply", CLOUDS[0]], ["files or arrays", "both"]),
        ({"a": CLOUDS[0], "b": "b.ply"}, ["files or arrays", "both"]),
        (CLOUDS[0], ["single", "list"]),
        (Tensor(CLOUDS[0]), ["list"]),
        (Mesh(CLOUDS[0]), ["single", "list"]),
        (CLOUDS[0][:, 0], ["shape"]),
        (np.array(3.0), ["single", "list"]),
        (np.zeros((2, 2, 5, 3)), ["cloud 0", "shape (2, 5, 3)"]),
        (io.StringIO("1 2 3"), ["open file", "path"]),
        (io.BytesIO(b"1 2 3"), ["open file", "path"]),
        ([io.StringIO("1 2 3")] * 2, ["cloud 0", "open file", "path"]),
        ([5, 6], ["cloud 0"]),
        ([None, None], ["cloud 0", "NoneType"]),
        ([CLOUDS, CLOUDS], ["cloud 0", "shape (3, 30, 3)"]),
        ([], ["two clouds"]),
        (["", ""], ["expected"]),
        (["a\0b.ply", "c.ply"], ["expected"]),
        (["a" * 5000, "b" * 5000], ["expected"]),
    ],
)
def test_odd_clouds_are_refused(clouds: Any, words: list[str]) -> None:
    refused(*words, call=lambda: register(clouds))


def test_a_single_table_is_one_cloud() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(CLOUDS[0], columns=list("xyz"))
    refused("single", "list", call=lambda: register(table))


def test_what_can_be_iterated_once_is_read_once() -> None:
    plain = judged(CLOUDS).mixture.means
    for form in (iter, np.array, lambda clouds: dict(enumerate(clouds)).values()):
        assert np.array_equal(judged(form(CLOUDS)).mixture.means, plain)


# Other arguments


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        *[(name, 5) for name in ("on_file", "on_iteration", "on_pair", "on_progress")],
        ("on_file", None),
        ("checkpoint", 5),
        ("checkpoint", "checkpoint.db"),
        ("recipe", None),
        ("recipe", 5),
        ("options", {"seed": 1}),
        ("poses", {"a": np.eye(4)}),
        ("poses", b"abc"),
        ("poses", iter([np.eye(4)] * 3)),
        ("weights", 5),
        ("weights", b"abc"),
        ("weights", {"a": np.ones(30)}),
        ("weights", "abc"),
        ("fixed", 1),
        ("fixed", b"\0"),
        ("fixed", {"a": 1}),
        ("fixed", None),
        ("priors", None),
        ("cluster", 5),
        ("memory", object()),
        ("memory", -1),
        ("output", 5),
    ],
)
def test_other_arguments_of_register(argument: str, value: Any) -> None:
    refused(f"{argument}", "expected", call=lambda: register(CLOUDS, **{argument: value}))


@pytest.mark.parametrize(
    "prior", [("a", np.eye(4), np.eye(6)), (0, None, np.eye(6)), (0, np.eye(4), "abc")]
)
def test_odd_priors(prior: tuple[Any, ...]) -> None:
    with unchecked():
        made = PosePrior(*prior)
    refused("priors: expected", call=lambda: register(CLOUDS, priors=[made]))
    refused("priors: expected", call=lambda: register(CLOUDS, priors=made))


@pytest.mark.parametrize(
    ("argument", "value"),
    [("memory", object()), ("memory", -1), ("memory", "lots"), ("memory", True), ("output", 5)],
)
def test_arguments_for_files(tmp_path: Path, argument: str, value: Any) -> None:
    for j, cloud in enumerate(CLOUDS):
        ply.write(tmp_path / f"{j}.ply", cloud)
    given = {"memory": "4GB"} | {argument: value}
    refused(f"{argument}: expected", call=lambda: register(tmp_path, **given))


@pytest.mark.parametrize("options", [Options, TrackOptions])
@pytest.mark.parametrize(
    ("name", "value"),
    [("seed", None), ("seed", "1"), ("seed", True), ("seed", 1.0), ("threads", "2")],
)
def test_numbers_of_options(options: type, name: str, value: Any) -> None:
    refused(f"{name}: expected", call=lambda: options(**{name: value}))


def test_arguments_of_the_other_verbs(result: coframe.Registration) -> None:
    first = CLOUDS[0]
    refused("poses", call=lambda: coframe.judge(CLOUDS, None, options=QUICK))
    refused("result", call=lambda: coframe.extend(None, first))
    refused("result", call=lambda: coframe.refine("out"))
    refused("result", call=lambda: coframe.forget(5, 0))
    refused("cloud: expected", call=lambda: coframe.forget(result, "a"))
    refused("cloud: expected", call=lambda: coframe.forget(result, 0.5))
    refused("pose", call=lambda: coframe.extend(result, first, 5))
    refused("weights", call=lambda: coframe.extend(result, first, weights="abc"))
    refused("seed", call=lambda: paper.batch_with_defaults(CLOUDS, seed="x"))
    refused("threads", call=lambda: paper.batch_with_defaults(CLOUDS, threads="x"))
    refused("components", call=lambda: paper.batch_with_defaults(CLOUDS, components="x"))
    refused("on_iteration", call=lambda: paper.batch_with_defaults(CLOUDS, on_iteration=5))
    refused("on_frame", call=lambda: coframe.track(CLOUDS, on_frame=5))
    refused("checkpoint", call=lambda: coframe.track(CLOUDS, checkpoint="x.db"))
    refused("recipe", call=lambda: coframe.track(CLOUDS, recipe=None))
    refused("source", call=lambda: coframe.track(5))
    refused("frame 0", call=lambda: coframe.track(["a", "b"]))
    refused("frame 0", "shape", call=lambda: coframe.track(CLOUDS[0]))


# Clouds of few points


def scattered(count: int, size: int, dimension: int) -> list[np.ndarray]:
    rng = np.random.default_rng([count, size, dimension])
    return [rng.normal(size=(size, dimension)) for _ in range(count)]


@pytest.mark.parametrize("dimension", [2, 3])
@pytest.mark.parametrize("size", [5, 10, 20])
def test_few_points_that_fit_by_chance_are_not_called_aligned(size: int, dimension: int) -> None:
    """Points at random have no right poses; what fits is chance."""
    clouds = scattered(4, size, dimension)
    with unchecked():
        judged = coframe.judge(clouds, geometry.identity(4, dimension), release=False)
        moved = coframe.register(clouds[:2], options=Options(start="identity"))
        longer = coframe.extend(judged, scattered(1, size, dimension)[0])
    for result in (judged, moved, longer):
        assert {verdict.verdict for verdict in result.verdicts} <= {"weak", "failed"}
    parameters = geometry.degrees_of_freedom(dimension)
    words = f"too few to check the {parameters} parameters of its pose"
    assert any(words in verdict.reason for verdict in judged.verdicts)


def test_few_points_beside_many_are_not_called_aligned() -> None:
    clouds, poses = views(3, sizes=(400, 400, 400))
    few = [*clouds[:2], clouds[2][:8]]
    with unchecked():
        result = coframe.judge(few, poses, release=False)
    assert [v.verdict for v in result.verdicts] == ["aligned", "aligned", "weak"]


@pytest.mark.parametrize("dimension", [2, 3])
def test_a_hundred_points_are_enough(dimension: int) -> None:
    clouds, poses = views(dimension, sizes=(100, 100, 100))
    with unchecked():
        result = coframe.judge(clouds, poses, release=False)
    assert [v.verdict for v in result.verdicts] == ["aligned"] * 3


# Files that are no regular files


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Fail, rather than wait, where something waits for ever."""

    def late(*_: object) -> None:
        raise AssertionError(f"still waiting after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


def listening(path: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
    return path


def folder(path: Path) -> Path:
    path.mkdir()
    return path


ODD_FILES = {"a pipe": pipe, "a socket": listening, "a folder": folder}
READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "poses": ("poses.json", pose_files.read),
    "intrinsics": ("camera.json", images.read_intrinsics),
    "camera": ("camera.json", lambda path: coframe.open_frames(path.parent, intrinsics=path)),
    "image": ("depth.png", images.read_depth),
    "TUM": ("path.txt", trajectory.read_tum),
    "KITTI": ("path.txt", trajectory.read_kitti),
    "cloud": ("scan.ply", clouds.read),
    "clouds": ("scan.ply", lambda path: clouds.open_all([path])),
    "blocks": ("scan.ply", lambda path: list(clouds.blocks(path))),
    "archive": ("state.npz", npz.read),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", ODD_FILES)
def test_only_regular_files_are_read(tmp_path: Path, reader: str, kind: str) -> None:
    name, read = READERS[reader]
    Image.new("I;16", (4, 4)).save(tmp_path / "other.png")
    path = ODD_FILES[kind](tmp_path / name)
    word = f"found {kind}"
    if kind == "a folder":  # of which poses and clouds may come, but not of this one
        word = {"poses": "no poses", "clouds": "found none"}.get(reader, word)
    with within(10):
        refused(str(path), word, call=lambda: read(path))


@pytest.mark.parametrize("reader", READERS)
def test_a_link_to_a_device_is_not_read(tmp_path: Path, reader: str) -> None:
    """Nor one to a file without end, in a process that may have a gigabyte."""
    name, read = READERS[reader]
    Image.new("I;16", (4, 4)).save(tmp_path / "other.png")
    path = tmp_path / name
    path.symlink_to("/dev/zero")
    before = resource.getrlimit(resource.RLIMIT_AS)
    here = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (here + 2**30, before[1]))
    try:
        with within(10):
            refused(str(path), "found a device", call=lambda: read(path))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_a_list_of_images_may_name_pipes(tmp_path: Path) -> None:
    (tmp_path / "depth.txt").write_text("1.0 depth.png\n2.0 sub\n")
    pipe(tmp_path / "depth.png")
    with within(10):
        refused("depth.png", "found a pipe", call=lambda: coframe.track(tmp_path))


def test_a_result_may_be_a_pipe(tmp_path: Path, result: coframe.Registration) -> None:
    result.save(tmp_path / "out")
    for name in ("state.npz", "run.json"):
        (tmp_path / "out" / name).unlink(missing_ok=True)
        pipe(tmp_path / "out" / name)
        with within(10):
            if name == "state.npz":
                refused("out", call=lambda: coframe.load(tmp_path / "out"))
            else:
                refused("run.json", "a pipe", call=lambda: run.load(tmp_path / "out", (3, 4, 4)))


def test_what_a_shell_makes_of_a_command_is_refused(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    with within(10):
        path = f"/dev/fd/{read_end}"
        refused(path, "a pipe", "save it to a file", call=lambda: pose_files.read(path))
    os.close(read_end)
    os.close(write_end)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("poses.json", pose_files.read),
        ("poses.txt", pose_files.read),
        ("camera.json", images.read_intrinsics),
        ("path.txt", trajectory.read_tum),
        ("run.json", lambda path: run.load(path.parent, (3, 4, 4))),
    ],
)
def test_small_files_are_small(tmp_path: Path, name: str, read: Callable[[Path], object]) -> None:
    with (tmp_path / name).open("wb") as file:
        file.truncate(2 * files.SMALL)
    refused(name, "MB", call=lambda: read(tmp_path / name))


NESTED = "[" * 100_000
EVIL_JSON = {
    "nested": NESTED,
    "nested clouds": f'{{"format": "coframe-poses/1", "clouds": {NESTED}',
    "huge numbers": json.dumps(
        {"format": "coframe-poses/1", "clouds": [{"name": "a", "pose": [[10**400] * 4] * 4}]}
    ),
    "a number of many digits": f'{{"format": {"9" * 5000}}}',
    "NaN": json.dumps(
        {"format": "coframe-poses/1", "clouds": [{"name": "a", "pose": [[np.nan] * 4] * 4}]}
    ),
    "a list": "[1, 2]",
    "null": "null",
    "clouds are a number": '{"format": "coframe-poses/1", "clouds": 5}',
    "a name twice": json.dumps(
        {
            "format": "coframe-poses/1",
            "clouds": [{"name": "a", "pose": np.eye(4).tolist()} for _ in range(2)],
        }
    ),
}


@pytest.mark.parametrize("content", EVIL_JSON.values(), ids=EVIL_JSON)
def test_json_that_is_no_poses(tmp_path: Path, content: str) -> None:
    path = tmp_path / "poses.json"
    path.write_text(content)
    refused("poses.json", "expected", call=lambda: pose_files.read(path))
    if content != EVIL_JSON["a name twice"]:
        path.rename(tmp_path / "camera.json")
        camera = tmp_path / "camera.json"
        refused("camera.json", "expected", call=lambda: images.read_intrinsics(camera))
        camera.rename(tmp_path / "run.json")
        refused("run.json", "expected", call=lambda: run.load(tmp_path, (3, 4, 4)))


# A run of track that goes on

OPTIONS = TrackOptions(points=200, components=50, every=3, window=3, iterations=1, final=1)


def sequence(folder: Path, count: int = 14) -> Path:
    """Depth images of a wavy wall that a camera passes."""
    folder.mkdir()
    v, u = np.mgrid[:48, :64]
    for i in range(count):
        x = u + 2 * i
        depths = 1500 + 120 * np.sin(x / 9) * np.cos(v / 7) + 2 * v + x
        Image.fromarray(depths.astype(np.uint16)).save(folder / f"{i:03}.png")
    camera = {"fx": 60.0, "fy": 60.0, "cx": 31.5, "cy": 23.5, "scale": 1000.0}
    (folder / "intrinsics.json").write_text(json.dumps(camera))
    return folder


def interrupted(folder: Path, checkpoint: Path) -> None:
    def stop(step: Any) -> None:
        if step.index == 11:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Checkpoint(checkpoint, every=0.0) as kept:
        coframe.track(folder, options=OPTIONS, checkpoint=kept, on_frame=stop)


def change(path: Path, **values: float) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def edit(path: Path) -> None:
    depths = np.asarray(Image.open(path)).copy()
    depths[10:14, 20:28] += 7
    Image.fromarray(depths).save(path)


def crop(path: Path) -> None:
    Image.fromarray(np.asarray(Image.open(path))[:40]).save(path)


def swap(folder: Path) -> None:
    """Two frames in the middle change their names."""
    (folder / "005.png").rename(folder / "other")
    (folder / "006.png").rename(folder / "005.png")
    (folder / "other").rename(folder / "006.png")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (lambda folder: edit(folder / "005.png"), ["005.png", "same points"]),
        (lambda folder: crop(folder / "007.png"), ["007.png", "same points"]),
        (swap, ["005.png", "same points"]),
        (lambda folder: edit(folder / "000.png"), ["000.png", "same points"]),
        (lambda folder: (folder / "013.png").unlink(), ["frames", "expected 14", "found 13"]),
        (lambda folder: (folder / "013.png").rename(folder / "014.png"), ["names and times"]),
        (lambda folder: change(folder / "intrinsics.json", fx=61.0), ["intrinsics", "61.0"]),
        (lambda folder: change(folder / "intrinsics.json", scale=999.0), ["intrinsics", "999.0"]),
    ],
    ids=["content", "size", "order", "first", "fewer", "renamed", "camera", "scale"],
)
def test_a_track_goes_on_with_the_same_frames_only(
    tmp_path: Path, changed: Callable[[Path], object], words: list[str]
) -> None:
    folder = sequence(tmp_path / "frames")
    interrupted(folder, tmp_path / "checkpoint.db")
    changed(folder)
    with Checkpoint(tmp_path / "checkpoint.db", resume=True) as kept:
        refused(*words, call=lambda: coframe.track(folder, options=OPTIONS, checkpoint=kept))


def test_a_track_goes_on_with_the_same_options_only(tmp_path: Path) -> None:
    folder = sequence(tmp_path / "frames")
    whole = coframe.track(folder, options=OPTIONS)
    interrupted(folder, tmp_path / "checkpoint.db")
    before = (tmp_path / "checkpoint.db").read_bytes()

    def resumed(source: Any = folder, options: TrackOptions = OPTIONS, **more: Any) -> Any:
        (tmp_path / "checkpoint.db").write_bytes(before)
        with Checkpoint(tmp_path / "checkpoint.db", resume=True) as kept:
            return coframe.track(source, options=options, checkpoint=kept, **more)

    for name, value in OPTIONS.record().items():
        if name != "method":
            other = replace(OPTIONS, **{name: value + 1})
            words = (f"{name}: expected {value}", f"found {value + 1}")
            refused(*words, call=lambda other=other: resumed(options=other))
    another = replace(SEQUENCE, same_view=SEQUENCE.same_view + 1)
    refused("recipe", "expected", call=lambda: resumed(recipe=another))
    refused("step: expected", call=lambda: resumed(coframe.open_frames(folder, step=3)))
    refused("near: expected", call=lambda: resumed(coframe.open_frames(folder, near=0.2)))
    longer = sequence(tmp_path / "longer", 15)
    refused("frames: expected 14", call=lambda: resumed(longer))
    assert np.array_equal(resumed(options=replace(OPTIONS, threads=1)).poses, whole.poses)


# Files of another kind


def test_a_truth_of_another_kind_is_one_sentence(
    tmp_path: Path, result: coframe.Registration
) -> None:
    result.save(tmp_path / "out")
    poses = tmp_path / "out" / "poses.json"
    path = tmp_path / "trajectory.txt"
    trajectory.write_tum(path, coframe.Trajectory(np.arange(3.0), IDENTITY))
    flat = tmp_path / "flat.json"
    pose_files.write(flat, result.names, geometry.identity(3, 2))
    refused("trajectory.txt", "cloud 0", call=lambda: evaluate_poses(poses, path))
    refused("merged.ply", call=lambda: evaluate_poses(poses, tmp_path / "out" / "merged.ply"))
    refused("flat.json", "size 4", call=lambda: evaluate_poses(poses, flat))
    refused("out", "no poses", call=lambda: evaluate_poses(poses, tmp_path / "out"))
    refused("absent", "No such file", call=lambda: evaluate_poses(poses, tmp_path / "absent"))
    refused("out", "folder", call=lambda: evaluate_trajectory(path, tmp_path / "out"))


def test_what_is_no_path_is_refused(tmp_path: Path) -> None:
    for value in (5, None, b"poses.json", ["poses.json"]):
        for read in (
            pose_files.read,
            trajectory.read_tum,
            images.read_intrinsics,
            clouds.read,
            coframe.open_frames,
            lambda value: clouds.expand([value]),
        ):
            refused("expected the path", call=lambda read=read, value=value: read(value))
    refused("poses", "read_for", call=lambda: register(CLOUDS, poses="poses.json"))
    folder = sequence(tmp_path / "frames", 1)
    for setting in ({"step": 0}, {"step": "2"}, {"near": "0.3"}, {"far": np.nan}):
        name = next(iter(setting))
        refused(
            f"{name}: expected", call=lambda setting=setting: coframe.open_frames(folder, **setting)
        )


def test_poses_are_written_under_as_many_names(tmp_path: Path) -> None:
    for form in pose_files.FORMATS:
        call = partial(pose_files.export, tmp_path / "poses", form, ["a", "b"], IDENTITY)
        refused("names: expected 3", "found 2", call=call)


def test_names_stay_with_their_files(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("scan10.ply", "scan2.ply", "a.ply")]
    for path, cloud in zip(paths, CLOUDS, strict=True):
        ply.write(path, cloud)
    found = judged(paths, names=["ten", "two", "a"])
    assert found.files == tuple(map(str, paths))
    assert found.names == ("ten", "two", "a")

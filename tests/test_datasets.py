# SPDX-License-Identifier: MIT
"""Published sets are found where they lie, and fetched from a server that may cut, change or
refuse: a real one, right here.
"""

import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import threading
import zipfile
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from coframe import InputError, geometry
from coframe.data import datasets, download
from coframe.io import ply, poses

BODY = np.random.default_rng(0).bytes(300_000)


@dataclass
class Site:
    """What the server serves, and how badly."""

    url: str = ""
    files: dict = field(default_factory=dict)
    cuts: list = field(default_factory=list)  # after how many bytes each of the next answers ends
    asked: list = field(default_factory=list)  # the Range header of every request
    ranges: bool = True  # whether parts can be asked for


@pytest.fixture
def site():
    """A web server with byte ranges and entity tags."""
    state = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            state.asked.append(self.headers.get("Range"))
            body = state.files.get(self.path)
            if body is None:
                self.send_error(404)
                return
            tag = f'"{hashlib.sha256(body).hexdigest()[:8]}"'
            begin = 0
            if state.ranges and self.headers.get("Range") and self.headers.get("If-Range") == tag:
                begin = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
                self.send_response(206)
            else:
                self.send_response(200)
            self.send_header("ETag", tag)
            self.send_header("Content-Length", str(len(body) - begin))
            self.end_headers()
            end = begin + state.cuts.pop(0) if state.cuts else len(body)
            self.wfile.write(body[begin:end])
            if end < len(body):
                self.wfile.flush()
                self.connection.close()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


def get(site, folder, name="file.bin"):
    return download.download_file(
        f"{site.url}/{name}", folder, record=folder / "checksums.json"
    ).read_bytes()


def test_a_file_is_fetched_once_and_its_checksum_written_down(site, tmp_path):
    site.files["/file.bin"] = BODY
    assert get(site, tmp_path) == BODY
    known = json.loads((tmp_path / "checksums.json").read_text())
    assert known == {f"{site.url}/file.bin": f"sha256:{hashlib.sha256(BODY).hexdigest()}"}
    get(site, tmp_path)
    assert len(site.asked) == 1


def test_a_broken_connection_goes_on_where_it_ended(site, tmp_path):
    site.files["/file.bin"], site.cuts = BODY, [100_000, 50_000]
    assert get(site, tmp_path) == BODY
    assert site.asked[0] is None
    first, second = (int(each.removeprefix("bytes=").removesuffix("-")) for each in site.asked[1:])
    assert 100_000 - download.BLOCK < first <= 100_000
    assert first + 50_000 - download.BLOCK < second <= first + 50_000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checksums.json", "file.bin"]


def test_a_later_run_goes_on_as_well(site, tmp_path):
    site.files["/file.bin"], site.cuts = BODY, [100_000, 0, 0]
    with pytest.raises(
        InputError, match=r"file\.bin: expected the whole file, found an end after 98304 bytes"
    ):
        get(site, tmp_path)
    assert not (tmp_path / "file.bin").exists()
    assert get(site, tmp_path) == BODY
    assert site.asked[-1] == "bytes=98304-"


def test_a_file_that_changed_half_way_is_fetched_anew(site, tmp_path):
    site.files["/file.bin"], site.cuts = BODY, [100_000, 0, 0]
    with pytest.raises(InputError):
        get(site, tmp_path)
    site.files["/file.bin"] = BODY[::-1]
    assert get(site, tmp_path) == BODY[::-1]


def test_a_server_without_ranges_starts_over(site, tmp_path):
    site.files["/file.bin"], site.cuts, site.ranges = BODY, [100_000], False
    assert get(site, tmp_path) == BODY


def test_another_file_than_the_first_time_is_refused(site, tmp_path):
    site.files["/file.bin"] = BODY
    get(site, tmp_path)
    (tmp_path / "file.bin").unlink()
    site.files["/file.bin"] = BODY[:-1]
    with pytest.raises(
        InputError,
        match=r"file\.bin: expected the file whose sha256:[0-9a-f]{64} was recorded, found another",
    ):
        get(site, tmp_path)
    assert not (tmp_path / "file.bin").exists()


def test_a_missing_file_is_named(site, tmp_path):
    with pytest.raises(
        InputError, match=r"nothing\.bin: expected a file, found HTTP status 404 Not Found"
    ):
        get(site, tmp_path, "nothing.bin")
    assert len(site.asked) == 1


def tarred(members):
    """A .tar.gz of names with their bytes, or of ready-made members."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in members.items():
            if isinstance(content, tarfile.TarInfo):
                tar.addfile(content)
                continue
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def linked(name, target):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, target
    return info


def zipped(members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as pack:
        for name, content in members.items():
            pack.writestr(name, content)
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "body", "message"),
    [
        (
            "up.tar.gz",
            tarred({"../evil.txt": b"x"}),
            "expected files that stay in their folder, found '../evil.txt'",
        ),
        (
            "root.tgz",
            tarred({"/tmp/evil.txt": b"x"}),
            "expected files that stay in their folder, found '/tmp/evil.txt'",
        ),
        (
            "link.tar.gz",
            tarred({"a": linked("a", "/etc")}),
            "expected files and folders, found 'a', a link or device",
        ),
        (
            "up.zip",
            zipped({"../evil.txt": b"x"}),
            "expected files that stay in their folder, found '../evil.txt'",
        ),
        ("half.tar.gz", tarred({"a": BODY})[:-1000], "expected an archive, found a damaged one"),
        ("half.ply.gz", gzip.compress(BODY)[:-1000], "expected an archive, found a damaged one"),
        ("page.zip", b"<html>sorry</html>", "expected an archive, found a damaged one"),
    ],
    ids=[
        "up",
        "root",
        "link",
        "up-zip",
        "half",
        "half-file",
        "page",
    ],  # bytes as names would hold the time of their packing
)
def test_bad_archives_are_refused_and_nothing_leaves_the_folder(tmp_path, name, body, message):
    archive, folder = tmp_path / name, tmp_path / "in" / "there"
    folder.mkdir(parents=True)
    archive.write_bytes(body)
    with pytest.raises(InputError, match=f"{name}: {message}"):
        download.unpack(archive, folder)
    assert sorted(path.name for path in tmp_path.rglob("*.txt")) == []


def scanned(tmp_path):
    """The files of a small set of scans, as Stanford packs them; and its poses."""
    rng, truth = (
        np.random.default_rng(0),
        np.array([np.eye(4), geometry.exp(np.array([0.1, 0.2, 0.3, 1.0, 2.0, 3.0]))]),
    )
    names, members = ["dragonStandRight_0", "dragonStandRight_24"], {}
    for name in names:
        ply.write(tmp_path / f"{name}.ply", rng.normal(size=(50, 3)))
        members[f"dragon_stand/{name}.ply"] = (tmp_path / f"{name}.ply").read_bytes()
    poses.export(tmp_path / "x.conf", "conf", names, truth, files=[f"{name}.ply" for name in names])
    members["dragon_stand/dragonStandRight.conf"] = (tmp_path / "x.conf").read_bytes()
    return members, truth


def test_a_set_is_fetched_unpacked_and_read(site, tmp_path, monkeypatch):
    members, truth = scanned(tmp_path)
    site.files["/dragon/dragon_stand.tar.gz"] = tarred(members)
    url = f"{site.url}/dragon/dragon_stand.tar.gz"
    monkeypatch.setenv("COFRAME_DATA", str(tmp_path / "data"))
    with pytest.raises(
        InputError,
        match=r"dragon: expected stanford/dragon_stand/dragonStandRight\.conf in .*, found none",
    ):
        datasets.load("dragon")
    found = datasets.load("dragon", fetch=True, url=url)
    assert found.names == ("dragonStandRight_0", "dragonStandRight_24")
    assert [cloud.shape for cloud in found.clouds()] == [(50, 3), (50, 3)]
    np.testing.assert_allclose(found.poses, truth, atol=1e-6)
    assert not list((tmp_path / "data").rglob("*.gz"))
    datasets.load("dragon", fetch=True, url=url)
    assert len(site.asked) == 1


def test_unknown_sets_are_named():
    with pytest.raises(InputError, match=r"name: expected one of bunny, .*found 'teapot'"):
        datasets.load("teapot")


@pytest.mark.parametrize("name", datasets.CATALOGUE)
def test_sets_on_disk_are_whole(name, data, monkeypatch):
    monkeypatch.setenv("COFRAME_DATA", str(data("")))
    if not datasets.present(name):
        pytest.skip(f"{name} is not in {data('')}; set COFRAME_DATA to the folder that holds it")
    found = datasets.load(name)
    assert found.names
    assert all(path.is_file() for path in found.paths)
    assert found.source.startswith("https://")
    assert found.terms
    if found.poses is not None:
        assert len(found.poses) == len(found.names)


def test_published_poses_bring_the_scans_together(data, monkeypatch):
    """The direction of the poses: the scans lie on each other under them, and not under their
    inverses.
    """
    from scipy.spatial import cKDTree

    monkeypatch.setenv("COFRAME_DATA", str(data("stanford").parent))
    bunny = datasets.load("bunny")
    clouds = bunny.clouds()[:2]

    def gap(T):
        a, b = (
            geometry.transform(pose, cloud[::20]) for pose, cloud in zip(T, clouds, strict=True)
        )
        return np.median(cKDTree(a).query(b)[0])

    assert gap(bunny.poses[:2]) < 0.5 * gap(geometry.inverse(bunny.poses[:2]))


def test_command_line_lists_and_refuses(tmp_path):
    environment = {**os.environ, "COFRAME_DATA": str(tmp_path / "data"), "COLUMNS": "200"}

    def run(*arguments):
        command = [sys.executable, "-m", "coframe", "datasets", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

    listed = run()
    assert (listed.returncode, listed.stderr) == (0, "")
    assert all(name in listed.stdout for name in datasets.CATALOGUE)
    refused = run("teapot")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("coframe: name: expected one of bunny")
    assert not (tmp_path / "data").exists()

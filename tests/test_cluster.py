# SPDX-License-Identifier: MIT
"""A cluster of processes over TCP gives the bits of one machine, whatever its workers suffer."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scenes import unchecked

import coframe
from coframe import geometry, threads
from coframe.align.recipe import ALIGN
from coframe.compute.cluster import Packed, Remote, check_client
from coframe.compute.per_cloud import Local
from coframe.data import simulate
from coframe.em import seeding
from coframe.em.estep import Cloud
from coframe.input import given
from coframe.input.normalise import Summary
from coframe.input.source import InMemory, cloud_digest
from coframe.io import clouds as cloud_files
from coframe.io import poses
from coframe.io.scan import Scan
from coframe.start import search

distributed = pytest.importorskip("distributed")

OPTIONS = coframe.Options(components=30, points=150, iterations=3, threads=1)
# Every kind of phase, each once: over a network, an iteration takes as long as a message does.
SHORT = replace(
    ALIGN,
    reach_count=1,
    trial_levels=2,
    max_repetitions=1,
)
LARGE = 60_000  # points of a cloud whose classification takes long enough to be interrupted


class Processes:
    """A scheduler and workers, each a process of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.file, self.arguments = folder / "scheduler.json", arguments
        self.processes: list[subprocess.Popen[bytes]] = []
        self.start(
            "scheduler",
            "--port",
            "0",
            "--host",
            "127.0.0.1",
            "--no-dashboard",
            "--scheduler-file",
            str(self.file),
        )

    def start(self, kind: str, *arguments: str) -> None:
        command = [sys.executable, "-m", "dask", kind, *arguments, *self.arguments]
        quiet = subprocess.DEVNULL
        self.processes.append(
            subprocess.Popen(
                command, stdout=quiet, stderr=quiet, env={**os.environ, "PYTHONWARNINGS": ""}
            )
        )

    def add_workers(self, count: int) -> None:
        for _ in range(count):
            file = "--scheduler-file", str(self.file)
            self.start(
                "worker",
                *file,
                "--no-nanny",
                "--nthreads",
                "1",
                "--no-dashboard",
                "--local-directory",
                str(self.file.parent),
            )

    @contextmanager
    def client(self, workers: int, **options: Any) -> Iterator[Any]:
        deadline = time.monotonic() + 60
        while not self.file.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        with self.connect(**options) as client:
            client.wait_for_workers(workers, timeout=60)
            yield client

    def connect(self, **options: Any) -> Any:
        """A client; on a machine so busy that its thread takes over ten seconds to start, in vain
        for a minute before the error counts."""
        deadline = time.monotonic() + 60
        while True:
            try:
                return distributed.Client(
                    scheduler_file=str(self.file),
                    direct_to_workers=True,
                    set_as_default=False,
                    timeout=60,
                    **options,
                )
            except AssertionError:
                if time.monotonic() > deadline:
                    raise

    def end(self) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    processes = Processes(tmp_path_factory.mktemp("cluster"))
    processes.add_workers(2)
    yield processes
    processes.end()


@pytest.fixture(scope="module")
def scene() -> simulate.SimulatedScene:
    return simulate.scene(
        5, 400, degrees=200.0, noise_db=45.0, outliers=0.1, rng=np.random.default_rng(0)
    )


@pytest.fixture(scope="module")
def files(scene: simulate.SimulatedScene, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The clouds as files, with colours; the last one is large."""
    folder, rng = tmp_path_factory.mktemp("files"), np.random.default_rng(1)
    many = scene.clouds[-1][rng.integers(0, len(scene.clouds[-1]), LARGE)] + rng.normal(
        0, 1e-3, (LARGE, 3)
    )
    paths = [folder / f"scan{j}.ply" for j in range(5)]
    for path, points in zip(paths, [*scene.clouds[:-1], many], strict=True):
        cloud_files.write(
            path, Scan(points, colours=rng.integers(0, 256, (len(points), 3), np.uint8))
        )
    return paths


def registered(clouds: Any, poses: np.ndarray | None, **arguments: Any) -> coframe.Registration:
    with unchecked():
        return coframe.register(clouds, poses, options=OPTIONS, recipe=SHORT, **arguments)


def same_result(one: coframe.Registration, other: coframe.Registration) -> None:
    for name in ("poses", "pose_covariance"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    np.testing.assert_array_equal(one.mixture.means, other.mixture.means)
    assert [step.log_likelihood for step in one.history] == [
        step.log_likelihood for step in other.history
    ]
    assert one.verdicts == other.verdicts


def same_folder(one: Path, other: Path, *, more_than: int = LARGE) -> None:
    """Both hold the same points, and say the same of them."""
    a, b = coframe.load(one), coframe.load(other)
    assert sum(map(len, a.clouds)) > more_than
    for name in ("clouds", "outlier_probability", "labels"):
        for x, y in zip(getattr(a, name), getattr(b, name), strict=True):
            np.testing.assert_array_equal(x, y)
    assert a.attributes[0].keys() == b.attributes[0].keys() >= {"red"}
    np.testing.assert_array_equal(a.attributes[-1]["red"], b.attributes[-1]["red"])


@pytest.fixture
def alone(
    scene: simulate.SimulatedScene, files: list[Path], tmp_path: Path
) -> coframe.Registration:
    result = registered(files, scene.poses)
    result.save(tmp_path / "alone")
    return result


@pytest.mark.slow
def test_two_three_and_four_workers_give_the_bits_of_one_machine(
    scene: simulate.SimulatedScene,
    files: list[Path],
    alone: coframe.Registration,
    cluster: Processes,
    tmp_path: Path,
) -> None:
    for count in (2, 3, 4):
        if count > 2:
            cluster.add_workers(1)
        with cluster.client(count) as client:
            assert len(client.nthreads()) == count
            output = tmp_path / f"{count} workers"
            result = registered(files, scene.poses, cluster=client, output=output)
            same_result(result, alone)
            assert result.counts == alone.counts
            assert max(map(len, result.clouds)) <= OPTIONS.points
            hidden = output / ".coframe-points"  # until the result is saved, one file a cloud
            assert len(list(hidden.iterdir())) == 5
            assert list(output.iterdir()) == [hidden]
            result.save(output)
            assert not hidden.exists()
            assert not (output / "merged.ply").exists()
            same_folder(output, tmp_path / "alone")


def test_arrays_are_sent_to_the_workers(scene: simulate.SimulatedScene, cluster: Processes) -> None:
    weights = [
        np.random.default_rng(j).integers(0, 3, len(cloud)).astype(float)
        for j, cloud in enumerate(scene.clouds)
    ]
    alone = registered(scene.clouds, scene.poses, weights=weights)
    with cluster.client(2) as client:
        result = registered(scene.clouds, scene.poses, weights=weights, cluster=client)
    same_result(result, alone)
    for name in ("clouds", "outlier_probability", "labels"):
        for x, y in zip(getattr(result, name), getattr(alone, name), strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.slow
def test_a_start_from_nothing_on_workers(
    scene: simulate.SimulatedScene, cluster: Processes
) -> None:
    clouds = list(map(InMemory, scene.clouds))
    summaries = Local(clouds).map(Summary.of)
    with unchecked(), cluster.client(2) as client, threads.quiet_blas():
        far = Remote.sent(client, clouds)
        one, other = (
            search.find_start(place, summaries, rng=np.random.default_rng(0), try_identity=False)
            for place in (Local(clouds), far)
        )
        assert one.groups == other.groups
        assert one.pairs == other.pairs
        np.testing.assert_array_equal(one.poses, other.poses)
        part = far.subset([3, 1])
        sizes = [len(scene.clouds[3]), len(scene.clouds[1])]
        assert [summary.size for summary in part.map(Summary.of)] == sizes
        assert [weights for _, weights in part.map_keep(cloud_digest).map(tuple)] == ["", ""]


def test_strays_count_as_nothing_on_workers_too(
    files: list[Path], cluster: Processes, tmp_path: Path
) -> None:
    points = cloud_files.read(files[0])
    np.save(tmp_path / "glitch.npy", np.insert(points, 7, [[1e9, 0, 0]], axis=0))
    paths = [tmp_path / "glitch.npy", files[1]]
    with (
        unchecked(),
        cluster.client(2) as client,
        given.open_clouds(paths, None, None, threads=1) as here,
    ):
        far = given.on_workers(paths, None, cluster=client)
        for one, other in zip(far.summaries, here.summaries, strict=True):
            np.testing.assert_array_equal(
                [one.median, one.low, one.high], [other.median, other.low, other.high]
            )
            assert (one.count, one.extent) == (other.count, other.extent)
        assert far.clouds.map(cloud_digest) == here.clouds.map(cloud_digest)
    assert here.loaded[0].weights is not None
    assert here.summaries[0].count == len(points)
    assert here.loaded[1].weights is None


def test_the_command_line_on_a_cluster(
    scene: simulate.SimulatedScene, files: list[Path], cluster: Processes, tmp_path: Path
) -> None:
    """`coframe register FILES --scheduler tcp://...` ends with the poses, the state and the points
    of a run on threads.
    """
    some = [str(path) for path in files[:3]]
    poses.write(tmp_path / "start.json", [path.stem for path in files[:3]], scene.poses[:3])
    with cluster.client(2):
        address = json.loads(cluster.file.read_text())["address"]
    assert address.startswith("tcp://127.0.0.1:")
    for output, place in (("threads", ["--threads", "1"]), ("cluster", ["--scheduler", address])):
        if output == "cluster":  # in place of an older result
            shutil.copytree(tmp_path / "threads", tmp_path / "cluster")
        command = [
            "register",
            *some,
            "-o",
            str(tmp_path / output),
            "--components",
            "8",
            "--no-report",
            "--json",
            *place,
        ]
        run = subprocess.run(
            [sys.executable, "-m", "coframe", *command, "--poses", str(tmp_path / "start.json")],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert run.returncode in (0, 1), run.stderr
        said = json.loads(run.stdout)
        assert len(said["clouds"]) == 3, said
    one, other = tmp_path / "threads", tmp_path / "cluster"
    assert json.loads((one / "poses.json").read_text()) == json.loads(
        (other / "poses.json").read_text()
    )
    with np.load(one / "state.npz") as a, np.load(other / "state.npz") as b:
        assert set(a) == set(b)
        for name in set(a):
            np.testing.assert_array_equal(a[name], b[name], err_msg=name)
    assert (one / "model.ply").read_bytes() == (other / "model.ply").read_bytes()
    written = {path.name for path in other.iterdir()}
    assert {"merged-0000.ply", "merged-0001.ply", "merged-0002.ply"} <= written
    assert not {"merged.ply", "checkpoint.db"} & written
    assert not [name for name in written if name.startswith(".")]
    same_folder(one, other, more_than=600)


def kill_one(client: Any) -> int:
    """`kill -9` of a worker that is at work; how many are left."""
    pids = client.run(os.getpid)
    busy = [worker for worker, tasks in client.processing().items() if tasks]
    os.kill(pids[(busy or list(pids))[0]], signal.SIGKILL)
    return len(pids) - 1


def test_lost_workers_cost_no_bit(
    scene: simulate.SimulatedScene,
    files: list[Path],
    alone: coframe.Registration,
    cluster: Processes,
    tmp_path: Path,
) -> None:
    cluster.add_workers(2)
    output = tmp_path / "cluster"
    hidden = output / ".coframe-points"
    killed: list[tuple[Any, int]] = []
    ended = threading.Event()
    with cluster.client(4) as client:

        def in_the_middle(step: coframe.Iteration) -> None:
            if len(step.poses) and step.number == 8 and not killed:
                killed.append(("iteration", kill_one(client)))

        def while_classifying() -> None:
            while not ended.is_set():
                if list(hidden.glob(".merged-*")):
                    killed.append((len(list(hidden.glob("merged-*"))), kill_one(client)))
                    return
                time.sleep(0.001)

        watcher = threading.Thread(target=while_classifying)
        watcher.start()
        try:
            result = registered(
                files,
                scene.poses,
                cluster=client,
                output=output,
                on_iteration=in_the_middle,
            )
        finally:
            ended.set()
            watcher.join()
        assert killed[0][0] == "iteration"
        assert killed[1][0] < len(files)  # not all were written yet
        deadline = time.monotonic() + 20
        while len(client.nthreads()) > killed[1][1] and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(client.nthreads()) == killed[1][1] == killed[0][1] - 1
    same_result(result, alone)
    result.save(output)
    assert list(output.glob(".*")) == []  # nothing half done is left
    same_folder(output, tmp_path / "alone")


def test_what_is_wrong_with_a_file_is_said_by_the_one_who_asked(
    cluster: Processes, files: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "bad.ply").write_text("ply\nnothing else\n")
    with cluster.client(2) as client:
        with pytest.raises(coframe.InputError, match=r"bad\.ply: expected a cloud"):
            registered([*files, tmp_path / "bad.ply"], None, cluster=client)
        with pytest.raises(coframe.InputError, match="weights: expected clouds in memory"):
            registered(files, None, cluster=client, weights=[np.ones(3)] * 5)
        with pytest.raises(coframe.InputError, match="output: expected"):
            registered([np.eye(3)] * 2, None, cluster=client, output=tmp_path)
    with pytest.raises(coframe.InputError, match="cluster: expected a client"):
        check_client("tcp://127.0.0.1:8786")


@pytest.mark.slow
def test_encrypted(scene: simulate.SimulatedScene, tmp_path: Path) -> None:
    """TLS with certificates of one's own, as docs/scaling.md has it."""
    trustme = pytest.importorskip("trustme")
    authority, certificate = trustme.CA(), tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(certificate))
    own = authority.issue_cert("127.0.0.1", "localhost")
    own.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "own.pem"))
    key = str(tmp_path / "own.pem")
    processes = Processes(
        tmp_path,
        "--protocol",
        "tls",
        "--tls-ca-file",
        str(certificate),
        "--tls-cert",
        key,
        "--tls-key",
        key,
    )
    try:
        processes.add_workers(1)
        security = distributed.Security(
            tls_ca_file=str(certificate),
            tls_client_cert=key,
            tls_client_key=key,
            require_encryption=True,
        )
        with processes.client(1, security=security) as client:
            address = client.scheduler_info()["address"]
            assert address.startswith("tls://")
            clouds = Local([Cloud.of(cloud) for cloud in scene.clouds])
            mixture = seeding.seed(np.concatenate(scene.clouds), 5, 20, 1e-6, np.eye(3))
            poses = geometry.identity(5, 3)
            far = Remote.sent(client, clouds.items).sweep(threads=1, tolerance=1e-6)
            for one, other in zip(
                far.moments(poses, mixture),
                clouds.sweep(threads=1, tolerance=1e-6).moments(poses, mixture),
                strict=True,
            ):
                for x, y in zip(_arrays(one), _arrays(other), strict=True):
                    np.testing.assert_array_equal(x, y)
        # without the certificate, nobody gets in
        with pytest.raises((OSError, RuntimeError, TypeError)):
            distributed.Client(address, timeout=5, set_as_default=False)
    finally:
        processes.end()


def _arrays(value: Any) -> list[np.ndarray]:
    return (
        [value]
        if isinstance(value, np.ndarray)
        else [value.mass, value.first, value.second, value.points]
    )


@pytest.mark.parametrize("full", [True, False])
def test_only_components_with_mass_travel(scene: simulate.SimulatedScene, full: bool) -> None:
    clouds = Local([Cloud.of(cloud) for cloud in scene.clouds])
    K = 60
    mixture = seeding.seed(np.concatenate(scene.clouds), 5, K, 1e-6, np.eye(3))
    if not full:
        spheres = np.tile(1e-3 * np.eye(3), (len(mixture), 1, 1))
        mixture = replace(mixture, covariances=spheres, outlier_density=1e-3)
    moments, log_likelihood = clouds.sweep(threads=1, tolerance=1e-6).moments(
        geometry.identity(5, 3), mixture, full=full
    )
    seen = int((moments.mass > 0).sum())
    assert 0 < seen < moments.mass.size
    packed = Packed.of(moments, log_likelihood)
    assert packed.nbytes == seen * (4 + 8 * (10 if full else 5)) + 5 * 16


# Lost workers, lost schedulers, other servers


@pytest.fixture
def lonely(tmp_path: Path) -> Iterator[Processes]:
    """A cluster with one worker."""
    processes = Processes(tmp_path)
    processes.add_workers(1)
    yield processes
    processes.end()


def start_run(
    cluster: Processes, files: list[Path], output: Path, *arguments: str
) -> "subprocess.Popen[str]":
    """`coframe register` on the cluster, which gives workers three seconds to come back."""
    with cluster.client(1) as client:
        address = client.scheduler.address
    command = "register", *map(str, files[:3]), "-o", str(output), "--components", "60"
    return start_cli(*command, *arguments, at=address)


def start_cli(*arguments: str, at: str, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "coframe", *arguments, "--scheduler", at, "--no-report", "--quiet"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "DASK_COFRAME__WITHOUT_WORKERS": "3s", **environment},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def wait_for_checkpoint(process: "subprocess.Popen[str]", output: Path) -> None:
    while process.poll() is None and not (output / "checkpoint.db").exists():
        time.sleep(0.02)
    time.sleep(0.3)
    if process.poll() is not None:
        pytest.fail(f"the run ended before anything was lost: {process.communicate()}")


def ended(process: "subprocess.Popen[str]", seconds: float = 20.0) -> tuple[int, str]:
    try:
        out, errors = process.communicate(timeout=seconds)
    finally:
        process.kill()
    assert out == ""
    assert errors.count("\n") == 1, errors
    return process.returncode, errors


def lose_workers(cluster: Processes, files: list[Path], output: Path) -> tuple[int, str]:
    """How a run ends whose only worker is killed in the middle."""
    process = start_run(cluster, files, output)
    wait_for_checkpoint(process, output)
    cluster.processes[1].kill()
    return ended(process)


def test_a_run_without_workers_ends_in_one_sentence(
    lonely: Processes, files: list[Path], tmp_path: Path
) -> None:
    code, errors = lose_workers(lonely, files, tmp_path / "out")
    assert code == 2
    assert "cluster: expected workers" in errors
    assert "--resume" in errors
    assert (tmp_path / "out" / "checkpoint.db").exists()


@pytest.mark.slow
def test_a_run_that_lost_its_workers_is_resumed(
    lonely: Processes, files: list[Path], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    lose_workers(lonely, files, output)
    lonely.add_workers(1)
    process = start_run(lonely, files, output, "--resume")
    _, errors = process.communicate(timeout=300)
    assert (process.returncode in (0, 1), errors) == (True, "")
    assert (output / "poses.json").exists()
    assert not (output / "checkpoint.db").exists()


def test_a_lost_scheduler_ends_a_run_in_one_sentence(
    lonely: Processes, files: list[Path], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    process = start_run(lonely, files, output)
    wait_for_checkpoint(process, output)
    lonely.processes[0].kill()
    code, errors = ended(process)
    assert code == 2
    assert "cluster: expected the scheduler" in errors
    assert "--resume" in errors
    assert (output / "checkpoint.db").exists()


def test_ctrl_c_ends_a_run_that_waits_for_workers(
    lonely: Processes, files: list[Path], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    process = start_run(lonely, files, output)
    wait_for_checkpoint(process, output)
    lonely.processes[1].kill()
    lonely.processes[1].wait()
    process.send_signal(signal.SIGINT)
    code, errors = ended(process, 5.0)
    assert code == 130
    assert errors.startswith("coframe: interrupted; go on with: ")


def test_a_worker_that_comes_in_time_goes_on(
    lonely: Processes, files: list[Path], scene: simulate.SimulatedScene
) -> None:
    alone = registered(files[:3], scene.poses[:3])
    killed = False

    def kill_the_only_one(step: coframe.Iteration) -> None:
        nonlocal killed
        if len(step.poses) and step.number == 3 and not killed:
            killed = True
            lonely.processes[1].kill()
            threading.Timer(0.5, lonely.add_workers, [1]).start()

    with lonely.client(1) as client:
        result = registered(
            files[:3], scene.poses[:3], cluster=client, on_iteration=kill_the_only_one
        )
    assert killed
    same_result(result, alone)


@pytest.mark.slow
def test_another_kind_of_server_is_named(files: list[Path], tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            address = f"tcp://127.0.0.1:{server.server_port}"
            command = "register", *map(str, files[:2]), "-o", str(tmp_path / "out")
            code, errors = ended(start_cli(*command, at=address))
        finally:
            server.shutdown()
    assert code == 2
    assert f"scheduler: expected the address of a Dask scheduler, found {address}" in errors


@pytest.mark.slow
def test_encryption_where_there_is_none_is_named(
    lonely: Processes, files: list[Path], tmp_path: Path
) -> None:
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    key = str(tmp_path / "own.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(key)
    with lonely.client(1) as client:
        address = client.scheduler.address.replace("tcp://", "tls://")
    own = {
        "DASK_DISTRIBUTED__COMM__TLS__CA_FILE": str(tmp_path / "ca.pem"),
        "DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT": key,
        "DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY": key,
    }
    command = "register", *map(str, files[:2]), "-o", str(tmp_path / "out")
    code, errors = ended(start_cli(*command, at=address, **own), 60.0)
    assert code == 2
    assert f"scheduler: expected the address of a Dask scheduler, found {address}" in errors

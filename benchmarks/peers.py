# SPDX-License-Identifier: MIT
"""The peers of `benchmarks.multiview`. They run in an environment of their own (`make peers`),
where coframe is not installed.

Run as a script, `peers.py NAME` serves one peer until its input ends, so that loading it is paid
for once and never timed. One JSON object a line: it says `{"version": ...}` first, then answers
each `{"clouds": ..., "start": ..., "settings": ...}` with `{"poses": ..., "seconds": ..., "cpu":
...}`.
Whatever goes wrong is an `{"error": sentence}`.

What a peer needs its user to choose is in `SETTINGS`, for clean scans and for noisy ones. About
thirty combinations a peer were tried on bunny and dragon as the benchmark has them, with the truth
at hand, and these came out best on balance; coframe is given none. Lengths are multiples of the
point spacing: the median distance from a point to its nearest neighbour.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "Open3D": {
        "clean": {"gates": [3.0, 1.5], "robust": True, "normal_radius": 4.0, "least_overlap": 0.3},
        "noisy": {"gates": [3.0, 1.5], "robust": False, "normal_radius": 4.0, "least_overlap": 0.3},
    },
    "MeshLib": {
        "clean": {"gates": [4.0, 0.8], "normal_radius": 4.0},
        "noisy": {"gates": [3.0, 1.5], "normal_radius": 5.0},
    },
}
SYSTEM_LIBRARIES = "libusb-1.0-0 libgl1 libx11-6 libgomp1"

# Pairs that share less than this at the start are not tried: on clean scans the poses stay the
# same, in two thirds of the time.
WORTH_TRYING = 0.02


def open3d(
    clouds: Sequence[np.ndarray],
    start: np.ndarray,
    *,
    gates: Sequence[float],
    robust: bool,
    normal_radius: float,
    least_overlap: float,
) -> list[np.ndarray]:
    """Every pair by point-to-plane ICP from the start, coarse gate then fine; then one pose graph
    over the pairs.

    Its certain edges are the maximum spanning tree of overlap. The other pairs are loop closures,
    which the optimiser may reject, and only those that share `least_overlap` of their points take
    part.
    """
    import open3d as o3d
    from scipy.sparse.csgraph import minimum_spanning_tree

    o3d.utility.set_verbosity_level(o3d.utility.VerbosityLevel.Error)
    icp = o3d.pipelines.registration
    M = len(clouds)
    scans = [o3d.geometry.PointCloud(o3d.utility.Vector3dVector(cloud)) for cloud in clouds]
    spacing = np.median([np.median(scan.compute_nearest_neighbor_distance()) for scan in scans])
    for scan in scans:
        scan.estimate_normals(
            o3d.geometry.KDTreeSearchParamHybrid(radius=normal_radius * spacing, max_nn=30)
        )

    overlap, pairs = np.zeros((M, M)), {}
    patient = icp.ICPConvergenceCriteria(max_iteration=60)
    for a in range(M):
        for b in range(a + 1, M):
            motion = np.linalg.inv(start[b]) @ start[a]
            if (
                icp.evaluate_registration(scans[a], scans[b], gates[0] * spacing, motion).fitness
                < WORTH_TRYING
            ):
                continue
            for gate in gates:
                loss = icp.TukeyLoss(k=gate * spacing) if robust else icp.L2Loss()
                plane = icp.TransformationEstimationPointToPlane(loss)
                found = icp.registration_icp(
                    scans[a], scans[b], gate * spacing, motion, plane, patient
                )
                motion = found.transformation
            fewer = min(len(clouds[a]), len(clouds[b]))
            overlap[a, b] = len(found.correspondence_set) / fewer
            information = icp.get_information_matrix_from_point_clouds(
                scans[a], scans[b], gates[-1] * spacing, motion
            )
            pairs[a, b] = motion, information

    tree = minimum_spanning_tree(-overlap).toarray() != 0
    if tree.sum() < M - 1:
        raise RuntimeError("the pairs that overlap do not connect all scans")
    graph = icp.PoseGraph()
    graph.nodes.extend([icp.PoseGraphNode(pose) for pose in start])
    for (a, b), (motion, information) in pairs.items():
        if tree[a, b] or overlap[a, b] >= least_overlap:
            graph.edges.append(
                icp.PoseGraphEdge(a, b, motion, information, uncertain=not tree[a, b])
            )
    icp.global_optimization(
        graph,
        icp.GlobalOptimizationLevenbergMarquardt(),
        icp.GlobalOptimizationConvergenceCriteria(),
        icp.GlobalOptimizationOption(
            max_correspondence_distance=gates[-1] * spacing,
            edge_prune_threshold=0.25,
            reference_node=0,
        ),
    )
    return [np.asarray(node.pose) for node in graph.nodes]


def open3d_global(
    clouds: Sequence[np.ndarray], start: np.ndarray, *, voxel: float
) -> list[np.ndarray]:
    """From nothing: FPFH and RANSAC for all pairs, point-to-plane ICP for each, then one pose
    graph. `start` is not used.

    The parameters are those of Open3D's tutorials on global and multiway registration, as multiples
    of the voxel. Certain edges are the maximum spanning tree of overlap, the others are loop
    closures that the optimiser may reject.
    """
    import open3d as o3d
    from scipy.sparse.csgraph import minimum_spanning_tree

    o3d.utility.set_verbosity_level(o3d.utility.VerbosityLevel.Error)
    o3d.utility.random.seed(0)
    icp = o3d.pipelines.registration
    M = len(clouds)
    scans, features = [], []
    for cloud in clouds:
        scan = o3d.geometry.PointCloud(o3d.utility.Vector3dVector(cloud)).voxel_down_sample(voxel)
        scan.estimate_normals(o3d.geometry.KDTreeSearchParamHybrid(radius=2 * voxel, max_nn=30))
        scan.orient_normals_consistent_tangent_plane(15)
        scans.append(scan)
        around = o3d.geometry.KDTreeSearchParamHybrid(radius=5 * voxel, max_nn=100)
        features.append(icp.compute_fpfh_feature(scan, around))

    overlap, pairs = np.zeros((M, M)), {}
    checkers = [
        icp.CorrespondenceCheckerBasedOnEdgeLength(0.9),
        icp.CorrespondenceCheckerBasedOnDistance(1.5 * voxel),
    ]
    for a in range(M):
        for b in range(a + 1, M):
            coarse = icp.registration_ransac_based_on_feature_matching(
                scans[a],
                scans[b],
                features[a],
                features[b],
                True,
                1.5 * voxel,
                icp.TransformationEstimationPointToPoint(False),
                3,
                checkers,
                icp.RANSACConvergenceCriteria(100_000, 0.999),
            )
            plane = icp.TransformationEstimationPointToPlane()
            fine = icp.registration_icp(scans[a], scans[b], voxel, coarse.transformation, plane)
            overlap[a, b] = len(fine.correspondence_set) / min(
                len(scans[a].points), len(scans[b].points)
            )
            information = icp.get_information_matrix_from_point_clouds(
                scans[a], scans[b], voxel, fine.transformation
            )
            pairs[a, b] = fine.transformation, information

    tree = minimum_spanning_tree(-overlap).toarray() != 0
    graph = icp.PoseGraph()
    poses = [np.eye(4) for _ in range(M)]
    done, waiting = {0}, set(range(1, M))
    while waiting:  # along the tree, from the first scan
        for a, b in zip(*np.nonzero(tree), strict=True):
            if a in done and b in waiting:
                poses[b] = poses[a] @ np.linalg.inv(pairs[a, b][0])
                done.add(b)
                waiting.discard(b)
            elif b in done and a in waiting:
                poses[a] = poses[b] @ pairs[a, b][0]
                done.add(a)
                waiting.discard(a)
    graph.nodes.extend([icp.PoseGraphNode(pose) for pose in poses])
    for (a, b), (motion, information) in pairs.items():
        if tree[a, b] or overlap[a, b] >= 0.3:
            graph.edges.append(
                icp.PoseGraphEdge(a, b, motion, information, uncertain=not tree[a, b])
            )
    icp.global_optimization(
        graph,
        icp.GlobalOptimizationLevenbergMarquardt(),
        icp.GlobalOptimizationConvergenceCriteria(),
        icp.GlobalOptimizationOption(
            max_correspondence_distance=voxel, edge_prune_threshold=0.25, reference_node=0
        ),
    )
    return [np.asarray(node.pose) for node in graph.nodes]


def meshlib(
    clouds: Sequence[np.ndarray],
    start: np.ndarray,
    *,
    gates: Sequence[float],
    normal_radius: float,
    scanner: float,
) -> list[np.ndarray]:
    """MultiwayICP on all points (no voxels), once for each gate.

    It drops neighbours whose normals disagree, so the normals must know in from out: they are
    turned to where the scanner stood, on the z axis of each scan, on the positive side where
    `scanner` is 1 and on the negative one where it is -1. Turned away from the scan's centroid
    instead, it loses scans that it keeps this way.
    """
    from meshlib import mrmeshnumpy, mrmeshpy
    from scipy.spatial import cKDTree

    def vector(v: np.ndarray) -> Any:
        return mrmeshpy.Vector3f(*(float(x) for x in v))

    spacing = np.median([np.median(cKDTree(cloud).query(cloud, k=2)[0][:, 1]) for cloud in clouds])
    kept, moved = [], mrmeshpy.Vector_MeshOrPointsXf_ObjId()
    for cloud, pose in zip(clouds, start, strict=True):
        bare = mrmeshnumpy.pointCloudFromPoints(cloud)
        normals = mrmeshnumpy.toNumpyArray(
            mrmeshpy.makeUnorientedNormals(bare, float(normal_radius * spacing))
        )
        normals[scanner * normals[:, 2] < 0] *= -1
        scan = mrmeshnumpy.pointCloudFromPoints(cloud, normals)
        kept.append(scan)  # MeshLib refers to it without owning it
        motion = mrmeshpy.AffineXf3f()
        motion.A.x, motion.A.y, motion.A.z = (vector(row) for row in pose[:3, :3])
        motion.b = vector(pose[:3, 3])
        part = mrmeshpy.MeshOrPoints(mrmeshpy.PointCloudPart(scan))
        moved.vec_.append(mrmeshpy.MeshOrPointsXf(part, motion))

    sampling = mrmeshpy.MultiwayICPSamplingParameters()
    sampling.samplingVoxelSize = 0.0
    together = mrmeshpy.MultiwayICP(moved, sampling)
    properties = mrmeshpy.ICPProperties()
    properties.iterLimit = 100
    for gate in gates:
        properties.distThresholdSq = float(gate * spacing) ** 2
        together.setParams(properties)
        together.updateAllPointPairs()
        found = together.calculateTransformations()

    poses = []
    for j in range(len(clouds)):
        motion = found.vec_[j]
        rows = [[v.x, v.y, v.z] for v in (motion.A.x, motion.A.y, motion.A.z, motion.b)]
        poses.append(np.eye(4))
        poses[-1][:3] = np.transpose([*np.transpose(rows[:3]), rows[3]])
    return poses


PEERS: dict[str, tuple[Callable[..., list[np.ndarray]], str, str]] = {  # function, module, package
    "Open3D": (open3d, "open3d", "open3d-cpu"),
    "Open3D global": (open3d_global, "open3d", "open3d-cpu"),
    "MeshLib": (meshlib, "meshlib.mrmeshpy", "meshlib"),
}


class Peer:
    """One peer in a process of its own, from the caller's side. Use it in a `with` statement."""

    def __init__(self, name: str, python: Path) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [python, __file__, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            self.version: str = self._answer()["version"]
        except BaseException:
            self._process.kill()
            raise

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def register(
        self, clouds: Sequence[np.ndarray], start: np.ndarray, settings: dict[str, Any]
    ) -> tuple[np.ndarray, float, float]:
        """The poses (M, 4, 4), and the seconds and CPU seconds that the peer itself took."""
        assert self._process.stdin is not None
        request = {
            "clouds": [cloud.tolist() for cloud in clouds],
            "start": np.asarray(start).tolist(),
            "settings": settings,
        }
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = self._answer()
        return np.array(answer["poses"]), float(answer["seconds"]), float(answer["cpu"])

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer = (
            json.loads(line)
            if line
            else {"error": f"it stopped with exit code {self._process.wait()}"}
        )
        if "error" in answer:
            raise RuntimeError(f"{self.name}: {answer['error']}")
        return answer


def serve(name: str) -> None:
    """The peer's side: answer requests on the standard input until it ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a library that prints must not speak into our answers

    def say(**answer: object) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    register, module, package = PEERS[name]
    try:
        import_module(module)
    except (ImportError, OSError) as error:
        advice = "run `make peers`"
        if name.startswith("Open3D"):
            advice += f"; on Debian or Ubuntu it also needs `apt-get install {SYSTEM_LIBRARIES}`"
        return say(error=f"cannot be imported ({error}): {advice}")
    say(version=version(package))
    for line in sys.stdin:
        request = json.loads(line)
        clouds, start = [np.array(cloud) for cloud in request["clouds"]], np.array(request["start"])
        try:
            began, busy = time.perf_counter(), time.process_time()
            poses = register(clouds, start, **request["settings"])
            seconds, cpu = time.perf_counter() - began, time.process_time() - busy
        except Exception as error:
            say(error=f"{type(error).__name__}: {error}")
        else:
            say(poses=[pose.tolist() for pose in poses], seconds=seconds, cpu=cpu)
    return None


if __name__ == "__main__":
    serve(sys.argv[1])

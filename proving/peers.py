# SPDX-License-Identifier: MIT
"""Solve one problem with another program:

    python peers.py PROBLEM.npz ANSWER.npz [SECONDS] [--name open3d]

Stands alone, since the peers live in an environment of their own (`make peers`) without coframe:
reads a saved `Problem` and writes an `Answer` (see problem.py for both), in at most SECONDS of a
processor. Without a name, Open3D registers clouds and kiss-icp follows sequences.

The peers are run as a careful user would run them: see `open3d`, `kiss_icp` and `small_gicp`. They
have no verdicts of their own. Open3D's clouds in the largest connected part of its pose graph count
as aligned, since users take them so, and the others as failed; of an odometry all frames count as
aligned.
"""

import argparse
import json
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

# Lengths are multiples of the point spacing: the median distance from a point to its nearest
# neighbour. `benchmarks/peers.py` says how they were chosen.

# [format] Gates of ICP, coarse to fine, for starts that are good; and before them, for rough ones.
FINE, COARSE = (3.0, 1.5), (24.0, 12.0, 6.0)
# [format] Radius of the normals.
NORMALS = 4.0
# [format] Pairs that share less of their points at the start are not tried.
WORTH_TRYING = 0.02
# [format] Pairs that share less of their points are no loop closures; and no certain edges.
CLOSURE, CERTAIN = 0.3, 0.1
# [format] Voxel of the features: in point spacings, and as a share of the extent, whichever is
# larger. Scans of sensors that see far are much denser near the sensor than where it counts.
VOXEL, VOXEL_SHARE = 2.0, 0.02
# [format] Iterations of RANSAC for a pair, as in Open3D's tutorial.
RANSAC = 100_000
# [format] [m] A frame that is larger is one of a lidar.
LIDAR_EXTENT = 12.0
# [format] [m] small_gicp: voxel of the points, voxel of the map, gate. Of a depth camera as in
# `benchmarks/sequence.py`; of a lidar, its own defaults.
DEPTH_GICP, LIDAR_GICP = (0.03, 0.05, 0.1), (0.25, 1.0, 1.0)
# [format] [m] kiss-icp: range (its voxel is a hundredth of it), first threshold, least motion. Of a
# lidar its own defaults, of a depth camera the same in proportion to the range.
DEPTH_KISS, LIDAR_KISS = (5.0, 0.1, 0.005), (100.0, 2.0, 0.1)

SYSTEM_LIBRARIES = "libusb-1.0-0 libgl1 libx11-6 libgomp1"

# Poses (M, 4, 4) and the groups of clouds that they connect.
Solution = tuple[np.ndarray, list[list[int]]]


class NotApplicableError(Exception):
    """The peer has no method for this kind of problem."""


def open3d(clouds: Sequence[np.ndarray], start: np.ndarray | None) -> Solution:
    """Every pair by point-to-plane ICP, then one pose graph over the pairs.

    With start poses ICP begins at them, twice: with fine gates alone and with coarse ones before
    these; the better of the two counts. From nothing it begins at what RANSAC over FPFH features
    finds for the pair. Certain edges of the graph are the maximum spanning tree of overlap; other
    pairs are loop closures, which the optimiser may reject.
    """
    from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

    o3d: Any = import_module("open3d")
    o3d.utility.set_verbosity_level(o3d.utility.VerbosityLevel.Error)
    o3d.utility.random.seed(0)
    icp = o3d.pipelines.registration
    M = len(clouds)
    # coordinates of maps are too large for single precision inside
    offset = np.mean([cloud.mean(0) for cloud in clouds], 0)
    shift = np.eye(4)
    shift[:3, 3] = offset
    if start is not None:
        start = np.linalg.inv(shift) @ start @ shift
    scans = [o3d.geometry.PointCloud(o3d.utility.Vector3dVector(c - offset)) for c in clouds]
    spacing = np.median([np.median(scan.compute_nearest_neighbor_distance()) for scan in scans])
    for scan in scans:
        scan.estimate_normals(
            o3d.geometry.KDTreeSearchParamHybrid(radius=NORMALS * spacing, max_nn=30)
        )
    patient = icp.ICPConvergenceCriteria(max_iteration=60)

    def refine(a: int, b: int, motion: np.ndarray, gates: Sequence[float]) -> Any:
        for gate in gates:
            plane = icp.TransformationEstimationPointToPlane(icp.TukeyLoss(k=gate * spacing))
            found = icp.registration_icp(scans[a], scans[b], gate * spacing, motion, plane, patient)
            motion = found.transformation
        return found

    def from_start(a: int, b: int) -> Any:
        assert start is not None
        motion = np.linalg.inv(start[b]) @ start[a]
        near = icp.evaluate_registration(scans[a], scans[b], COARSE[0] * spacing, motion)
        if near.fitness < WORTH_TRYING:
            return None
        return max(
            refine(a, b, motion, FINE),
            refine(a, b, motion, COARSE + FINE),
            key=lambda found: len(found.correspondence_set),
        )

    if start is None:
        voxel = max(VOXEL * spacing, VOXEL_SHARE * np.median([_extent(c) for c in clouds]))
        from_features = _feature_matcher(o3d, scans, voxel)

    overlap, pairs = np.zeros((M, M)), {}
    for a in range(M):
        for b in range(a + 1, M):
            if start is None:
                found = refine(a, b, from_features(a, b), (voxel / spacing, *FINE))
            else:
                found = from_start(a, b)
            if found is None:
                continue
            shared = len(found.correspondence_set) / min(len(clouds[a]), len(clouds[b]))
            if shared < CERTAIN:
                continue
            overlap[a, b] = shared
            information = icp.get_information_matrix_from_point_clouds(
                scans[a], scans[b], FINE[-1] * spacing, found.transformation
            )
            pairs[a, b] = found.transformation, information

    tree = minimum_spanning_tree(-overlap).toarray() != 0
    poses = np.tile(np.eye(4), (M, 1, 1)) if start is None else np.array(start)
    labels = connected_components(tree, directed=False)[1]
    groups = [np.flatnonzero(labels == label).tolist() for label in np.unique(labels)]
    for group in groups:
        if len(group) < 2:
            continue
        if start is None:
            _chain(poses, group, tree, pairs)
        graph = icp.PoseGraph()
        graph.nodes.extend([icp.PoseGraphNode(poses[j]) for j in group])
        for (a, b), (motion, information) in pairs.items():
            if a in group and (tree[a, b] or overlap[a, b] >= CLOSURE):
                edge = group.index(a), group.index(b)
                graph.edges.append(
                    icp.PoseGraphEdge(*edge, motion, information, uncertain=not tree[a, b])
                )
        icp.global_optimization(
            graph,
            icp.GlobalOptimizationLevenbergMarquardt(),
            icp.GlobalOptimizationConvergenceCriteria(),
            icp.GlobalOptimizationOption(
                max_correspondence_distance=FINE[-1] * spacing,
                edge_prune_threshold=0.25,
                reference_node=0,
            ),
        )
        poses[group] = [np.asarray(node.pose) for node in graph.nodes]
    return shift @ poses @ np.linalg.inv(shift), sorted(groups, key=len, reverse=True)


def _feature_matcher(
    o3d: Any, scans: Sequence[Any], voxel: float
) -> Callable[[int, int], np.ndarray]:
    """RANSAC over FPFH features of a pair, with the parameters of Open3D's tutorial."""
    icp = o3d.pipelines.registration
    thinned, features = [], []
    for scan in scans:
        few = o3d.geometry.PointCloud(scan.points).voxel_down_sample(voxel)
        few.estimate_normals(o3d.geometry.KDTreeSearchParamHybrid(radius=2 * voxel, max_nn=30))
        few.orient_normals_consistent_tangent_plane(15)
        around = o3d.geometry.KDTreeSearchParamHybrid(radius=5 * voxel, max_nn=100)
        thinned.append(few)
        features.append(icp.compute_fpfh_feature(few, around))
    checkers = [
        icp.CorrespondenceCheckerBasedOnEdgeLength(0.9),
        icp.CorrespondenceCheckerBasedOnDistance(1.5 * voxel),
    ]

    def match(a: int, b: int) -> np.ndarray:
        coarse = icp.registration_ransac_based_on_feature_matching(
            thinned[a],
            thinned[b],
            features[a],
            features[b],
            True,
            1.5 * voxel,
            icp.TransformationEstimationPointToPoint(False),
            3,
            checkers,
            icp.RANSACConvergenceCriteria(RANSAC, 0.999),
        )
        plane = icp.TransformationEstimationPointToPlane()
        return np.asarray(
            icp.registration_icp(
                thinned[a], thinned[b], voxel, coarse.transformation, plane
            ).transformation
        )

    return match


def _chain(
    poses: np.ndarray,
    group: Sequence[int],
    tree: np.ndarray,
    pairs: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]],
) -> None:
    """Poses along the tree, from the first cloud of the group."""
    done, waiting = [group[0]], set(group[1:])
    for a in done:  # grows on the way
        for b in sorted(waiting):
            if tree[a, b]:
                poses[b] = poses[a] @ np.linalg.inv(pairs[a, b][0])
            elif tree[b, a]:
                poses[b] = poses[a] @ pairs[b, a][0]
            else:
                continue
            done.append(b)
            waiting.discard(b)


def kiss_icp(frames: Sequence[np.ndarray]) -> Solution:
    """kiss-icp, each frame against its local map; no deskewing, since frames have no times."""
    reach, threshold, motion = LIDAR_KISS if _extent(frames[0]) > LIDAR_EXTENT else DEPTH_KISS
    config = import_module("kiss_icp.config").KISSConfig()
    config.data.max_range = reach
    config.data.deskew = False
    config.mapping.voxel_size = reach / 100
    config.registration.max_num_threads = 1
    config.adaptive_threshold.initial_threshold = threshold
    config.adaptive_threshold.min_motion_th = motion
    odometry = import_module("kiss_icp.kiss_icp").KissICP(config)
    poses = []
    for frame in frames:
        odometry.register_frame(np.ascontiguousarray(frame, float), np.zeros(len(frame)))
        poses.append(np.array(odometry.last_pose))
    return np.array(poses), [list(range(len(frames)))]


def small_gicp(frames: Sequence[np.ndarray]) -> Solution:
    """small_gicp, each frame against a growing Gaussian voxel map, from a constant velocity."""
    library: Any = import_module("small_gicp")
    voxel, cell, gate = LIDAR_GICP if _extent(frames[0]) > LIDAR_EXTENT else DEPTH_GICP
    grid, pose, motion = library.GaussianVoxelMap(cell), np.eye(4), np.eye(4)
    poses: list[np.ndarray] = []
    for frame in frames:
        points, _ = library.preprocess_points(
            np.ascontiguousarray(frame, float), downsampling_resolution=voxel, num_neighbors=15
        )
        if poses:
            found = library.align(
                grid,
                points,
                init_T_target_source=pose @ motion,
                max_correspondence_distance=gate,
            )
            motion, pose = np.linalg.inv(pose) @ found.T_target_source, found.T_target_source
        grid.insert(points, pose)
        poses.append(pose)
    return np.array(poses), [list(range(len(frames)))]


def _extent(cloud: np.ndarray) -> float:
    """The longest side of the box around the middle 98 % of the points."""
    low, high = np.percentile(cloud, [1, 99], axis=0)
    return float((high - low).max())


# What each peer solves, the module that it needs, and what solves it.
PEERS: dict[str, tuple[str, str, Callable[..., Solution]]] = {
    "open3d": ("register", "open3d", open3d),
    "kiss-icp": ("track", "kiss_icp", kiss_icp),
    "small_gicp": ("track", "small_gicp", small_gicp),
}


def import_library(name: str) -> None:
    """Import the peer's library before the time is taken; end with one sentence if it is absent."""
    module = PEERS[name][1]
    try:
        import_module(module)
    except (ImportError, OSError) as error:
        advice = "run `make peers` and use the Python of .venv-peers"
        if name == "open3d":
            advice += f"; on Debian or Ubuntu it also needs `apt-get install {SYSTEM_LIBRARIES}`"
        sys.exit(f"{name}: the library {module} cannot be imported ({error}); {advice}")


def solve(name: str, about: dict[str, Any], stored: Any) -> dict[str, Any]:
    """Poses, verdicts and groups, as `Answer` has them."""
    kind, _, function = PEERS[name]
    clouds = [stored[f"clouds.{j}"] for j in range(about["lists"]["clouds"])]
    if about["rest"]["kind"] != kind:
        raise NotApplicableError(
            f"{name} does not apply to problems of kind {about['rest']['kind']}"
        )
    if clouds[0].shape[1] != 3:
        raise NotApplicableError(f"{name} does not apply to points in the plane")
    if kind == "track":
        poses, groups = function(clouds)
    else:
        poses, groups = function(clouds, stored["start"] if "start" in stored.files else None)
    largest = groups[0] if len(groups[0]) > 1 else []
    verdicts = ["aligned" if j in largest else "failed" for j in range(len(clouds))]
    return {"poses": poses, "verdicts": verdicts, "groups": groups}


def largest_memory() -> int:
    """The largest resident size of this process [bytes].

    On Linux, getrusage counts what the parent had before this program was loaded, too.
    """
    status = Path("/proc/self/status")
    if status.exists():
        rows = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(rows["VmHWM"].split()[0]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Solve one problem with another program.")
    parser.add_argument("problem")
    parser.add_argument("answer")
    parser.add_argument("seconds", nargs="?", type=int, default=0)
    parser.add_argument("--name", choices=[*PEERS], default=None)
    options = parser.parse_args(arguments)
    if options.seconds:
        resource.setrlimit(resource.RLIMIT_CPU, (options.seconds, options.seconds + 5))
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    empty: dict[str, Any] = {"poses": None, "verdicts": [], "groups": []}
    rest: dict[str, Any] = {"warnings": [], "covariance": None, "error": None}
    with np.load(options.problem, allow_pickle=False) as stored:
        about = json.loads(str(stored["json"]))
        default = "open3d" if about["rest"]["kind"] == "register" else "kiss-icp"
        name = options.name or default
        import_library(name)
        began, cpu = time.perf_counter(), time.process_time()
        try:
            rest |= solve(name, about, stored)
        except NotApplicableError as error:
            rest |= {**empty, "error": str(error)}
        except Exception as error:
            rest |= {**empty, "error": f"{type(error).__name__}: {error}"}
        rest["seconds"] = time.perf_counter() - began
        rest["cpu"] = time.process_time() - cpu
    rest["memory"] = largest_memory()
    arrays = {} if rest["poses"] is None else {"poses": rest.pop("poses")}
    with open(options.answer, "wb") as file:
        text = json.dumps({"rest": {"poses": None} | rest, "lists": {}})
        np.savez(file, json=np.array(text), **arrays)


if __name__ == "__main__":
    main()

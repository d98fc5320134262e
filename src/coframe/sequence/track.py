# SPDX-License-Identifier: MIT
"""`track`: a sequence in, the path of the sensor and a model of the scene out."""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from coframe.align.recipe import ALIGN
from coframe.compute.checkpoint import Checkpoint, digest
from coframe.em import seeding
from coframe.em.mixture import Mixture
from coframe.errors import InputError
from coframe.geometry import extent
from coframe.input.options import check_callables, check_kind
from coframe.io import npz, ply, trajectory
from coframe.io.depth import Intrinsics
from coframe.io.files import as_json, atomic
from coframe.io.frames import Frame, FrameSource, from_arrays, from_iterator, open_frames
from coframe.io.manifest import MANIFEST, Manifest
from coframe.io.trajectory import Trajectory
from coframe.io.transaction import consistent, transaction
from coframe.sequence import degeneracy, state
from coframe.sequence.degeneracy import Stretch
from coframe.sequence.keyframes import MIN_KEYFRAMES, Keyframe
from coframe.sequence.options import TrackOptions
from coframe.sequence.recipe import SEQUENCE, SequenceRecipe
from coframe.sequence.tracker import PreparedFrame, Progress, Tracker
from coframe.threads import quiet_blas
from coframe.types import Array

# [format] What track.json says it is.
FORMAT = "coframe-track/1"
# [format] What the manifest calls it, and what a folder of it can hold.
KIND = "track"
FILES = (
    "trajectory.txt",
    "trajectory.kitti.txt",
    "trajectory.json",
    "model.ply",
    "merged.ply",
    "track.json",
    "state.npz",
)
# [size] Frames from one record in the checkpoint to the next.
RECORD_EVERY = 10
DEFAULTS = TrackOptions()


@dataclass(frozen=True, eq=False, repr=False)
class Track(Trajectory):
    """The path of a sensor and what the model of the scene is made of.

    Parameters
    ----------
    times, poses
        As in `Trajectory`, one for each frame; a lost frame has the last pose known before it.
    lost
        Which frames have no pose in the common frame.
    explained
        Share of each frame's points that the model explained when the frame came.
    keyframes
        The frames that were kept, with their points; those of a map have the index -1.
    mixture
        Mixture of the last key frames; None before the first frame.
    names
        Names of all frames of the source; more than there are poses where the run ended early.
    skipped
        Why frames could not be read, by their indices; they count as lost.
    timed
        Whether `times` are times, and not numbers of frames.
    degenerate
        Stretches of frames that leave a direction undetermined, as a tunnel does.
    options
        The options of the run.

    Examples
    --------
    >>> path = coframe.track("rgbd_dataset_freiburg1_desk")
    >>> path.found().length, path.merged()
    >>> path.save("desk")
    """

    lost: Bool[Array, " N"]
    explained: Float[Array, " N"]
    keyframes: tuple[Keyframe, ...]
    mixture: Mixture | None
    names: tuple[str, ...] = ()
    options: TrackOptions = field(default_factory=TrackOptions)
    skipped: Mapping[int, str] = field(default_factory=dict)
    timed: bool = True
    degenerate: tuple[Stretch, ...] = ()

    def __post_init__(self) -> None:
        if not self.names:
            object.__setattr__(self, "names", tuple(f"frame {i}" for i in range(len(self))))

    def __repr__(self) -> str:
        points = sum(len(keyframe.cloud) for keyframe in self.keyframes)
        shown = self.explained[~self.lost]
        typical = float(np.median(shown)) if len(shown) else 0.0
        skipped = f", {len(self.skipped)} that could not be read" if self.skipped else ""
        lost = int(self.lost.sum()) - len(self.skipped)
        return (
            f"Track of {len(self)} frames, {lost} lost{skipped}\n"
            f"  path: length {self.found().length:.4g}, {typical:.0%} of a frame explained\n"
            f"  model: {len(self.keyframes)} key frames, {points} points"
        )

    @classmethod
    def of(cls, tracker: Tracker, names: tuple[str, ...] = (), *, timed: bool = True) -> "Track":
        """What a tracker knows so far, in the frame of its largest segment."""
        main = tracker.main
        lost = [base < 0 or tracker.keyframes[base].segment != main for base in tracker.base]
        poses = np.zeros((len(lost), 4, 4))
        last = np.eye(4)
        for i, is_lost in enumerate(lost):
            last = last if is_lost else tracker.pose(i)
            poses[i] = last
        return cls(
            np.array(tracker.times),
            poses,
            lost=np.array(lost, bool),
            explained=np.array(tracker.explained),
            keyframes=tracker.map_keyframes
            if tracker.fixed_map
            else tuple(k for k in tracker.keyframes if k.segment == main),
            mixture=tracker.mixture,
            names=names,
            options=tracker.options,
            skipped=dict(tracker.problems),
            timed=timed,
            degenerate=degeneracy.stretches(
                np.array(tracker.undetermined, bool) & ~np.array(lost, bool),
                np.array(tracker.weak_direction).reshape(-1, 3),
                np.array(tracker.weak_ratio),
                poses,
                MIN_KEYFRAMES,
            ),
        )

    def found(self) -> Trajectory:
        """The path without the lost frames."""
        return Trajectory(self.times[~self.lost], self.poses[~self.lost])

    def merged(self) -> Float[Array, "_ D"]:
        """The points of all key frames in the common frame."""
        return np.concatenate(
            [keyframe.points for keyframe in self.keyframes] or [np.zeros((0, 3))]
        )

    def model(self, components: int = 5000) -> Mixture:
        """A mixture of the whole scene.

        Parameters
        ----------
        components
            Components at most, one for each cell of a tree over the points of all key frames.

        Returns
        -------
        Mixture
            In the common frame.

        Raises
        ------
        InputError
            If no frame was localised.
        """
        points = self.merged()
        if not len(points):
            raise InputError("model: expected frames that show something, found none")
        floor = ALIGN.min_variance * extent(points) ** 2
        return seeding.seed(points, 1, components, floor, np.eye(points.shape[1]))

    def record(self) -> dict[str, object]:
        """What track.json says: frames, lost ones, quality of each, key frames, options."""
        return {
            "format": FORMAT,
            "frames": len(self),
            "of": len(self.names),
            "timed": self.timed,
            "lost": [self.names[i] for i in np.flatnonzero(self.lost) if i not in self.skipped],
            "skipped": [
                {"name": self.names[i], "reason": reason} for i, reason in self.skipped.items()
            ],
            "degenerate": [
                {
                    "first": stretch.first,
                    "last": stretch.last,
                    "direction": stretch.direction.tolist(),
                    "ratio": stretch.ratio,
                }
                for stretch in self.degenerate
            ],
            "explained": [round(share, 4) for share in self.explained.tolist()],
            "keyframes": [keyframe.index for keyframe in self.keyframes],
            "options": asdict(self.options),
            "version": version("coframe"),
        }

    def save(self, folder: str | os.PathLike[str]) -> list[str]:
        """Write the trajectory, model.ply, merged.ply, track.json and state.npz, all at once.

        The trajectory is in trajectory.txt (TUM) and trajectory.json (coframe-poses/1), both
        without lost frames, and in trajectory.kitti.txt, a line for every frame; there, a lost one
        has the last pose known.

        Parameters
        ----------
        folder
            Made if it does not exist. A result of coframe that is there is replaced.

        Returns
        -------
        list of str
            The names of the files. Without key frames there is no model.ply and no merged.ply.

        Examples
        --------
        >>> coframe.track("desk").save("out")
        """
        with transaction(folder, KIND) as new:
            written = self.write_files(new)
        return [*written, MANIFEST]

    def write_files(self, folder: Path) -> list[str]:
        """Write all files into an empty folder, and return their names."""
        # A file without times has numbers of frames instead, and says so.
        comments = [] if self.timed else ["numbers of frames instead of times"]
        found = np.flatnonzero(~self.lost)
        trajectory.write_tum(folder / "trajectory.txt", self.found(), comments)
        trajectory.write_kitti(folder / "trajectory.kitti.txt", self)
        trajectory.write_json(
            folder / "trajectory.json", self.found(), [self.names[i] for i in found], found.tolist()
        )
        clouds = []
        if self.keyframes:
            clouds = ["model.ply", "merged.ply"]
            model = self.model()
            scalars = {"variance": model.variances, "weight": model.weights}
            ply.write(folder / "model.ply", model.means, **scalars)
            sizes = [len(keyframe.cloud) for keyframe in self.keyframes]
            indices = np.array([keyframe.index for keyframe in self.keyframes], "<i4")
            ply.write(folder / "merged.ply", self.merged(), frame=np.repeat(indices, sizes))
        with atomic(folder / "track.json") as temporary:
            temporary.write_text(as_json(self.record()) + "\n")
        arrays = {
            "times": self.times,
            "poses": self.poses,
            "lost": self.lost,
            "explained": self.explained,
            "about": np.array(
                json.dumps(
                    {
                        "names": self.names,
                        "options": asdict(self.options),
                        "skipped": list(self.skipped.items()),
                        "timed": self.timed,
                        "degenerate": self.record()["degenerate"],
                    }
                )
            ),
            **state.pack_keyframes(self.keyframes),
            **({} if self.mixture is None else self.mixture.to_arrays()),
        }
        with atomic(folder / "state.npz") as temporary, open(temporary, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        paths = ["trajectory.txt", "trajectory.kitti.txt", "trajectory.json"]
        return [*paths, *clouds, "track.json", "state.npz"]

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "Track":
        """Read what `save` wrote, to the last bit.

        Parameters
        ----------
        folder
            The folder of a result of `track`.

        Returns
        -------
        Track
            As it was saved.

        Raises
        ------
        InputError
            If the folder holds something else.

        Examples
        --------
        >>> coframe.Track.load("desk").poses
        """
        return consistent(folder, lambda manifest: cls._load(Path(folder), manifest))

    @classmethod
    def _load(cls, folder: Path, manifest: Manifest | None) -> "Track":
        path = folder / "state.npz"
        if not path.is_file():
            raise InputError(f"{folder}: expected a result of track, found no state.npz in it")
        if manifest is not None and manifest.kind != KIND:
            raise InputError(f"{folder}: expected a result of track, found a {manifest.kind}")
        if manifest is not None:
            manifest.check(folder, manifest.files)
        with state.refusing(path, "a result of track", "run coframe track again"):
            return cls._of_arrays(npz.read(path))

    @classmethod
    def _of_arrays(cls, s: dict[str, Array]) -> "Track":
        shapes = {"times": "N", "poses": "N 4 4", "lost": "N", "explained": "N"}
        frames = npz.numbers(s, shapes)["N"]
        if s["lost"].dtype != bool:
            raise ValueError("lost is no array of truth values")
        state.check_motions("its poses", s["poses"])
        about = json.loads(str(s["about"]))
        names = tuple(str(name) for name in about["names"])
        if len(names) < frames:
            raise ValueError("it has fewer names than frames")
        return cls(
            s["times"],
            s["poses"],
            lost=s["lost"],
            explained=s["explained"],
            keyframes=tuple(state.unpack_keyframes(s, frames)),
            mixture=state.unpack_mixture(s),
            names=names,
            options=TrackOptions(**about["options"]),
            skipped=state.unpack_problems(np.array(json.dumps(about["skipped"])), frames),
            timed=bool(about["timed"]),
            degenerate=tuple(
                Stretch(
                    int(each["first"]),
                    int(each["last"]),
                    np.array(each["direction"], float).reshape(3),
                    float(each["ratio"]),
                )
                for each in about["degenerate"]
            ),
        )


@quiet_blas()
def track(
    source: str | os.PathLike[str] | FrameSource | Iterable[Any],
    *,
    intrinsics: Intrinsics | str | os.PathLike[str] | None = None,
    options: TrackOptions = DEFAULTS,
    map: "Track | str | os.PathLike[str] | None" = None,
    localise_only: bool = False,
    checkpoint: Checkpoint | None = None,
    on_frame: Callable[[Progress], bool | None] = lambda progress: False,
    recipe: SequenceRecipe = SEQUENCE,
) -> Track:
    """Follow a sensor through a sequence of frames; pose i carries frame i into the first one's
    frame.

    Where the path breaks and its segments cannot be connected, poses are those of the largest
    segment, and other frames are lost.

    Parameters
    ----------
    source
        A folder or bag (see `open_frames`), frames that `open_frames` has opened, or (N, 3) arrays,
        one for each frame, or pairs of a time [s] and an array. Of a generator, one frame after
        the other is read and none is kept.
    intrinsics
        The camera of a folder of depth images, as `open_frames` takes it.
    options
        How the sequence is tracked.
    map
        An earlier track of the same scene, or the folder where one was saved: frames are found in
        it, wherever they begin, poses are in its frame, and its key frames are those of the result
        together with the new ones. Frames that are not found in it are lost.
    localise_only
        Whether the map stays as it is: its key frames do not move, and the result has no others.
    checkpoint
        Keeps what is done, so that an interrupted run goes on to the same result.
    on_frame
        Called after each frame; returning True ends the run with what is done.
    recipe
        The tuned numbers.

    Returns
    -------
    Track
        Poses, lost frames, key frames and a mixture of the last of them.

    Raises
    ------
    InputError
        If the source holds no frames in space, an argument is of the wrong type, or the checkpoint
        is of another run.

    Examples
    --------
    >>> path = coframe.track("rgbd_dataset_freiburg1_desk")
    >>> path.poses, path.lost
    >>> coframe.track("rgbd_dataset_freiburg1_desk2", map=path)
    """
    if not isinstance(options, TrackOptions):
        raise InputError(f"options: expected TrackOptions, found {type(options).__name__}")
    check_kind("recipe", recipe, SequenceRecipe)
    check_callables(on_frame=on_frame)
    if checkpoint is not None:
        check_kind("checkpoint", checkpoint, Checkpoint)
    known = _map_keyframes(map, localise_only=localise_only)
    frames = _frames(source, intrinsics)
    tracker = Tracker(options, recipe, known, localise_only)
    seen: list[int] = []  # a digest of each frame, for the checkpoint
    if checkpoint is not None:
        seen = _resume(tracker, checkpoint, frames)

    def prepare(i: int, frame: Frame) -> tuple[PreparedFrame, int]:
        return tracker.prepare(i, frame), 0 if checkpoint is None else _digest(frame)

    ahead = frames.prepared(prepare, len(tracker.times), threads=options.threads)
    with closing(ahead) as prepared:
        for frame, value in prepared:
            step = tracker.add(frame)
            if checkpoint is not None:
                seen.append(value)
                if len(seen) % RECORD_EVERY == 0:
                    digests = {"frames": np.array(seen, np.uint64)}
                    checkpoint.keep("tracker", state.pack(tracker) | digests)
            if on_frame(step):
                break
    if tracker.problems and len(tracker.problems) == len(tracker.times):
        first = next(iter(tracker.problems.values()))
        raise InputError(f"{first}; none of the {len(tracker.times)} frames can be read")
    tracker.settle()
    return Track.of(tracker, frames.names, timed=frames.timed)


def _map_keyframes(
    given: "Track | str | os.PathLike[str] | None", *, localise_only: bool
) -> tuple[Keyframe, ...]:
    """The key frames of a map, as those of no frame of this sequence."""
    if given is None:
        if localise_only:
            raise InputError("localise_only: expected a map to localise frames in, found none")
        return ()
    found = Track.load(given) if isinstance(given, str | os.PathLike) else given
    check_kind("map", found, Track)
    if len(found.keyframes) < MIN_KEYFRAMES:
        raise InputError(
            f"map: expected a track with at least {MIN_KEYFRAMES} key frames, found"
            f" {len(found.keyframes)}; track a longer sequence first"
        )
    return tuple(replace(keyframe, index=-1, segment=0) for keyframe in found.keyframes)


def _frames(source: object, intrinsics: Intrinsics | str | os.PathLike[str] | None) -> FrameSource:
    if isinstance(source, str | os.PathLike):
        return open_frames(source, intrinsics=intrinsics)
    if intrinsics is not None:
        raise InputError(
            "intrinsics: expected a folder of depth images with them, found frames that are read"
            " already"
        )
    if isinstance(source, FrameSource):
        return source
    if not isinstance(source, Iterable):
        raise InputError(
            "source: expected a folder, frames from open_frames or (N, 3) arrays, found"
            f" {type(source).__name__}"
        )
    return from_arrays(source) if isinstance(source, Sequence) else from_iterator(source)


def _resume(tracker: Tracker, checkpoint: Checkpoint, frames: FrameSource) -> list[int]:
    """Go on from the checkpoint, after a check that it is of the same run.

    Of the frames, their number, names, times and settings are compared, and the points of all that
    are done, which are read once more for it. Returns the digests of these.
    """
    names = np.array(json.dumps(frames.names))
    about = {"frames": len(frames), "names and times": digest(names, frames.times)}
    if tracker.map_keyframes:
        about["map"] = digest(*state.pack_keyframes(tracker.map_keyframes).values())
        about["localise_only"] = tracker.fixed_map
    first = [(name, "") for name in frames.names[:1]]
    recipe = digest(np.array(repr(tracker.recipe)))
    checkpoint.begin(tracker.options.record() | about | dict(frames.settings), first, recipe)
    kept = checkpoint.kept("tracker")
    if kept is None:
        return []
    with state.refusing(
        checkpoint.path, "the state of a run of track", "begin anew without --resume"
    ):
        state.restore(tracker, kept)
        npz.numbers(kept, {"times": "N", "frames": "N"})
    done = [int(each) for each in kept["frames"]]
    checked = frames.prepared(lambda i, frame: (frame.name, _digest(frame)), 0, len(done))
    with closing(checked) as found:
        for before, (name, now) in zip(done, found, strict=False):
            if before != now:
                raise InputError(
                    f"{name}: expected the same points as in the interrupted run in"
                    f" {checkpoint.path.parent}, found others; leave --resume out to begin anew"
                )
    return done


def _digest(frame: Frame) -> int:
    """A digest of a frame that fits into 64 bits."""
    offsets = np.zeros(0) if frame.offsets is None else frame.offsets
    return int(digest(frame.points, frame.weights, offsets)[:16], 16)

# SPDX-License-Identifier: MIT
"""Groups that nothing connects become one result."""

from dataclasses import replace

import numpy as np

import coframe
from coframe import geometry
from coframe.data import simulate
from coframe.paper import initial
from coframe.result.groups import side_by_side


def test_the_history_is_that_of_the_group_that_took_longest() -> None:
    scenes = [
        simulate.scene(2, 100, degrees=20.0, rng=np.random.default_rng(seed)) for seed in (0, 1)
    ]
    parts = [
        coframe.paper.batch(
            scene.clouds,
            initial.means_on_sphere(scene.clouds, 20, np.random.default_rng(2)),
            iterations=count,
        )
        for scene, count in zip(scenes, (2, 5), strict=True)
    ]
    clouds = [scenes[0].clouds[0], scenes[1].clouds[0], scenes[0].clouds[1], scenes[1].clouds[1]]

    def span(poses: np.ndarray) -> np.ndarray:
        x = [
            geometry.transform(pose, cloud)[:, 0] for pose, cloud in zip(poses, clouds, strict=True)
        ]
        return np.array([[each.min(), each.max()] for each in x])

    result = side_by_side(parts, [(0, 2), (1, 3)], list("abcd"), list(map(len, clouds)), span)
    assert result.iterations == 5
    shift = geometry.translation(result.poses[[1, 3]] - parts[1].poses)
    assert shift[0, 0] > 0
    for step, own in zip(result.history, parts[1].history, strict=True):
        np.testing.assert_array_equal(
            geometry.rotation(step.poses[[1, 3]]), geometry.rotation(own.poses)
        )
        np.testing.assert_allclose(
            geometry.translation(step.poses[[1, 3]]),
            geometry.translation(own.poses) + shift,
            atol=1e-12,
        )
    aligned = replace(result, clouds=tuple(clouds)).aligned()
    assert max(aligned[j][:, 0].max() for j in (0, 2)) < min(aligned[j][:, 0].min() for j in (1, 3))

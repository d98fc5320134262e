# SPDX-License-Identifier: MIT
"""Fourier ring and shell correlation of two halves of the particles."""

import numpy as np
from jaxtyping import Float

from coframe.types import Array

# [format] Correlation at which a structure counts as resolved.
THRESHOLD = 1 / 7
# [size] Cells of the density along an axis, in the plane and in space.
CELLS = {2: 512, 3: 128}


def fourier_correlation(
    first: Float[Array, "N D"], second: Float[Array, "N2 D"], extent: float
) -> tuple[Float[Array, " F"], Float[Array, " F"]]:
    """Correlation of two sets of localisations, by spatial frequency.

    Parameters
    ----------
    first, second : array (N, D)
        Localisations of two halves of the particles, in the common frame.
    extent : float
        Length of the cube about the middle of both that is compared; its edges are faded out.

    Returns
    -------
    frequencies, correlations : array (F,)
        In 1 / unit; Fourier ring correlation in the plane, shell correlation in space.
    """
    D = first.shape[1]
    n = CELLS[D]
    middle = np.median(np.concatenate([first, second]), axis=0)
    edges = [np.linspace(c - extent / 2, c + extent / 2, n + 1) for c in middle]
    fade = np.ones(n)
    ramp = np.sin(np.linspace(0, np.pi / 2, n // 8)) ** 2
    fade[: len(ramp)] = ramp
    fade[-len(ramp) :] = ramp[::-1]
    waves = []
    for points in (first, second):
        image = np.histogramdd(points, bins=edges)[0]
        for axis in range(D):
            image = image * fade.reshape([-1 if a == axis else 1 for a in range(D)])
        waves.append(np.fft.fftn(image))
    frequency = np.fft.fftfreq(n) * n
    radius = np.sqrt(sum(f**2 for f in np.meshgrid(*[frequency] * D, indexing="ij")))
    ring = np.rint(radius).astype(int).ravel()
    inside = n // 2

    def over_rings(values: Array) -> Array:
        return np.bincount(ring, values.ravel(), minlength=inside)[:inside]

    cross = over_rings((waves[0] * waves[1].conj()).real)
    power = over_rings(np.abs(waves[0]) ** 2) * over_rings(np.abs(waves[1]) ** 2)
    return np.arange(inside) / extent, cross / np.sqrt(np.maximum(power, np.finfo(float).tiny))


def resolution(frequencies: Float[Array, " F"], correlations: Float[Array, " F"]) -> float:
    """Length at which the correlation, averaged over five rings, first falls below 1/7."""
    smooth = np.convolve(correlations, np.ones(5) / 5, mode="same")
    below = np.flatnonzero(smooth[2:-2] < THRESHOLD) + 2
    return float(1 / frequencies[below[0]]) if len(below) else float(1 / frequencies[-1])

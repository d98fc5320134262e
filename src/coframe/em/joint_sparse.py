# SPDX-License-Identifier: MIT
"""The joint pose system of 400 clouds or more, solved without writing its matrix down.

Clouds touch each other only through the components that they share (see `joint`): H = B - W^T W,
where B has a block for each cloud and W (3K, 6M) one for each component that a cloud sees. Written
down, H takes (6M)^2 numbers, and solving it (6M)^3 operations. Here the poses are eliminated
instead of the means. With F_j F_j^T = B_j^-1 and V = W F,

    H^-1 = F (I + V^T (I - V V^T)^-1 V) F^T

and the one matrix to be factored, I - V V^T, has the size of the model, whatever the number of
clouds. The stiffness against a motion that all clouds share is one more block row of V, with the
other sign. Steps of refinement by products with H take the residual down to rounding. Nothing here
depends on the number of threads.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.linalg.lapack import dgetrf, dgetrs

from coframe.em import joint_kernels, joint_sparse_kernels
from coframe.types import Array

# [size] Clouds: with fewer, the dense system is as quick.
MIN_CLOUDS = 400
# [size] Clouds for each component: with fewer, the dense system is as quick.
MIN_RATIO = 0.6
# [size] Numbers in W at a time, while it is built.
ROOM = 1 << 23
# [guard] Share of the mean stiffness: a cloud with less is not constrained at all.
WEAKEST = 1e-12
# [guard] Steps of iterative refinement, at most.
REFINEMENTS = 3
# [guard] Relative residual at which refinement ends.
RESIDUAL = 1e-14
# [guard] Extents or radians: a solution with a larger entry counts as not finite.
NOT_FINITE = 1e30
# [guard] Share of the diagonal that is added: unconstrained directions do not run away.
DAMPING = 1e-9
# [guard] The same where the system is still singular, one after the other.
HEAVIER_DAMPING = (1e-6, 1e-3, 1.0)
# [guard] Per squared extent and radian: the covariance of an unconstrained pose is large, not
# infinite.
LEAST_INFORMATION = 1e-20
# [guard] Rounding of a double.
DIGITS = np.finfo(float).eps


def pays(clouds: int, components: int) -> bool:
    """Whether there are so many clouds that this is quicker than the dense system."""
    return clouds >= MIN_CLOUDS and clouds >= MIN_RATIO * components


def entries_of(dimension: int) -> list[int]:
    """The entries of a twist in space that a scene has: in the plane, about z, along x and y."""
    return [2, 3, 4] if dimension == 2 else list(range(6))


@dataclass(frozen=True)
class SparseEquations:
    """B, W and the gradient.

    W is stored cloud by cloud: of cloud j, with s_j components, the columns as rows, (P, 3 s_j).
    """

    own: Float[Array, "M P P"]  # B
    gradient: Float[Array, "M P"]
    # the first pair of each cloud, among those of a cloud and a component that it sees
    begin: Int[Array, " M1"]
    component: Int[Array, " n"]  # of each pair
    couplings: Float[Array, " nP3"]
    components: int  # K

    @classmethod
    def of(
        cls,
        mass: Float[Array, "M K"],
        first: Float[Array, "M K 3"],
        second: Float[Array, "M K 3 3"],
        arm: Float[Array, "K 3"],
        precisions: Float[Array, "K 3 3"],
        dimension: int,
    ) -> "SparseEquations":
        """From moments in space."""
        entries = entries_of(dimension)
        M, K = mass.shape
        own, g = np.zeros((M, 6, 6)), np.zeros(6 * M)
        # What `joint_blocks` takes for nothing is left out; rounding may let a few more pass.
        seen = mass > 0.99 * joint_kernels.UNSEEN * mass.sum(0)
        begin = np.concatenate([[0], np.cumsum(seen.sum(1))])
        component = np.nonzero(seen)[1]
        couplings = np.empty(len(entries) * 3 * len(component))
        written = np.zeros(M, np.int64)  # pairs of each cloud so far
        size = max(1, ROOM // (18 * M))
        for start in range(0, K, size):
            stop = min(start + size, K)
            W = np.empty((3 * (stop - start), 6 * M))
            joint_kernels.joint_blocks(mass, first, second, arm, precisions, start, stop, own, g, W)
            joint_sparse_kernels.store(
                W, seen, start, stop, np.array(entries), begin, written, couplings
            )
        own += np.swapaxes(own, 1, 2)  # only the upper triangles were built
        own[:, range(6), range(6)] /= 2
        own, g = own[:, entries][:, :, entries], g.reshape(M, 6)[:, entries]
        return cls(
            np.ascontiguousarray(own), np.ascontiguousarray(g), begin, component, couplings, K
        )

    @cached_property
    def diagonal(self) -> Float[Array, "M P"]:
        """Of H."""
        return np.diagonal(self.own, axis1=1, axis2=2) - joint_sparse_kernels.squares(
            self.begin, self.couplings, self.own.shape[1]
        )

    def add(
        self, cloud: int, information: Float[Array, "P P"], gradient: Float[Array, " P"]
    ) -> None:
        """Add a prior on one cloud's twist, in place."""
        self.own[cloud] += information
        self.gradient[cloud] += gradient

    def solve(
        self,
        right: Float[Array, "M P"],
        extra: Float[Array, "M P"],
        allowed: Bool[Array, "M P"],
        gauge_free: bool,
    ) -> Float[Array, "M P"]:
        """H^-1 right with `extra` on the diagonal, of the entries that are allowed to move."""
        free = allowed & self.constrained
        for damping in (DAMPING, *HEAVIER_DAMPING):
            found = self.factored(extra, free, damping=damping, gauge_free=gauge_free).solved(right)
            if (np.abs(found) < NOT_FINITE).all():  # false for NaN
                return found
        return np.zeros_like(right)

    def covariances(self, allowed: Bool[Array, "M P"], gauge_free: bool) -> Float[Array, "M P P"]:
        """The blocks of H^-1 on the diagonal, less the common motion where that is free."""
        least = np.full(self.gradient.shape, LEAST_INFORMATION)
        factored = self.factored(least, allowed, damping=DAMPING, gauge_free=gauge_free)
        return factored.blocks()

    @property
    def constrained(self) -> Bool[Array, "M P"]:
        """Which clouds anything constrains at all: not those whose points are all outliers."""
        own = np.diagonal(self.own, axis1=1, axis2=2)
        return np.asarray(own > WEAKEST * own.mean())

    def factored(
        self,
        extra: Float[Array, "M P"],
        free: Bool[Array, "M P"],
        *,
        damping: float,
        gauge_free: bool,
    ) -> "Factored":
        """H with `extra` on its diagonal, damped, of the entries that are free to move.

        Where it is free, the motion that all clouds share gets a stiffness; as in the dense system.
        """
        M, P = self.gradient.shape
        diagonal = self.diagonal + extra
        damped = damping * diagonal + np.finfo(float).tiny
        level = float((diagonal + damped).mean())
        B = self.own.copy()
        B[:, range(P), range(P)] += np.maximum(
            extra + damped, WEAKEST * level - np.diagonal(self.own, axis1=1, axis2=2)
        )
        F = _inverse_roots(B, free)
        gauge = np.sqrt(level / M) * np.swapaxes(F, 1, 2) if gauge_free else np.zeros((M, P, 0))
        V = self.couplings.copy()
        joint_sparse_kernels.scale(self.begin, V, F)
        return Factored(
            self.begin, self.component, V, self.components, F, np.ascontiguousarray(gauge)
        )


@dataclass(frozen=True)
class Factored:
    """H in units in which every cloud's own block is the identity: I - V^T V + G^T G."""

    begin: Int[Array, " M1"]
    component: Int[Array, " n"]
    V: Float[Array, " nP3"]
    components: int
    roots: Float[Array, "M P P"]  # F
    gauge: Float[Array, "M P Q"]  # G^T; Q is P, or 0 where no common motion is free

    def solved(self, right: Float[Array, "M P"]) -> Float[Array, "M P"]:
        """H^-1 right."""
        wanted = _times(np.swapaxes(self.roots, 1, 2), right)
        found = self._inverse(wanted)
        left = wanted - self._product(found)
        for _ in range(REFINEMENTS):
            better = found + self._inverse(left)
            rest = wanted - self._product(better)
            if not np.linalg.norm(rest) < np.linalg.norm(left):  # rounding, or no number
                break
            found, left = better, rest
            if np.linalg.norm(left) <= RESIDUAL * np.linalg.norm(wanted):
                break
        return _times(self.roots, found)

    def blocks(self) -> Float[Array, "M P P"]:
        """The blocks of H^-1 that belong to each cloud by itself; less the motion they share, where
        that is free.
        """
        M, P, Q = self.gauge.shape
        # it is symmetric
        inverse = np.ascontiguousarray(_solve(self._model, np.eye(3 * self.components + Q)).T)
        inside = np.zeros((M, P, P))
        joint_sparse_kernels.gather_blocks(
            self.begin, self.component, self.V, self.gauge, inverse, inside
        )
        F, Ft = self.roots, np.swapaxes(self.roots, 1, 2)
        found = F @ (np.eye(P) + inside) @ Ft
        if Q:
            columns = [self.solved(np.tile(unit, (M, 1))) / M for unit in np.eye(P)]
            mean = np.stack(columns, 2)  # of all blocks in a row
            found = found - mean - np.swapaxes(mean, 1, 2) + mean.mean(0)
        return (found + np.swapaxes(found, 1, 2)) / 2

    def _product(self, y: Float[Array, "M P"]) -> Float[Array, "M P"]:
        gathered, scattered = np.zeros(3 * self.components), np.zeros_like(y)
        joint_sparse_kernels.gather(self.begin, self.component, self.V, y, gathered)
        joint_sparse_kernels.scatter(self.begin, self.component, self.V, gathered, scattered)
        common = np.einsum("jpq,jp->q", self.gauge, y)
        return y - scattered + self.gauge @ common

    def _inverse(self, y: Float[Array, "M P"]) -> Float[Array, "M P"]:
        K, P = 3 * self.components, y.shape[1]
        model, scattered = np.zeros(K + self.gauge.shape[2]), np.zeros_like(y)
        joint_sparse_kernels.gather(self.begin, self.component, self.V, y, model[:K])
        model[K:] = np.einsum("jpq,jp->q", self.gauge, y)
        answer = _solve(self._model, model)
        joint_sparse_kernels.scatter(self.begin, self.component, self.V, answer[:K], scattered)
        return y + scattered + (self.gauge @ answer[K:]).reshape(-1, P)

    @cached_property
    def _model(self) -> tuple[Array, Array]:
        """Factors of diag(I, -I) - (V; G) (V; G)^T."""
        K, (_, P, Q) = 3 * self.components, self.gauge.shape
        C = np.zeros((K + Q, K + Q))
        joint_sparse_kernels.outer(
            self.begin,
            self.component,
            *_by_component(self.begin, self.component, self.components),
            self.V,
            P,
            C,
        )
        C[:K, :K] = np.triu(C[:K, :K]) + np.triu(C[:K, :K], 1).T
        for q in range(Q):
            column = np.zeros(K)
            joint_sparse_kernels.gather(
                self.begin,
                self.component,
                self.V,
                np.ascontiguousarray(self.gauge[:, :, q]),
                column,
            )
            C[:K, K + q] = C[K + q, :K] = -column
        C[K:, K:] = -np.einsum("jpq,jpr->qr", self.gauge, self.gauge)
        C[range(K), range(K)] += 1
        C[range(K, K + Q), range(K, K + Q)] -= 1
        # it is symmetric, and LAPACK's matrices are stored by columns
        factors, pivots, _ = dgetrf(C.T, overwrite_a=True)
        return factors, pivots


def _inverse_roots(B: Float[Array, "M P P"], free: Bool[Array, "M P"]) -> Float[Array, "M P P"]:
    """F with F F^T = B^-1 of the entries that are free, and zeros for the others."""
    P = B.shape[1]
    B = np.where(free[:, :, None] & free[:, None, :], B, 0.0)
    B[:, range(P), range(P)] += ~free
    unit = 1 / np.sqrt(np.diagonal(B, axis1=1, axis2=2))
    even = unit[:, :, None] * B * unit[:, None, :]
    # where rounding has left a direction unconstrained
    lift = np.maximum(2 * P * DIGITS - np.linalg.eigvalsh(even)[:, 0], 0)
    even[:, range(P), range(P)] += lift[:, None]
    F = unit[:, :, None] * np.swapaxes(np.linalg.inv(np.linalg.cholesky(even)), 1, 2)
    return np.where(free[:, :, None] & free[:, None, :], F, 0.0)


def _solve(model: tuple[Array, Array], right: Float[Array, "..."]) -> Float[Array, "..."]:
    return np.asarray(dgetrs(*model, right)[0])


def _times(A: Float[Array, "M P P"], x: Float[Array, "M P"]) -> Float[Array, "M P"]:
    return np.ascontiguousarray((A @ x[..., None])[..., 0])


def _by_component(
    begin: Int[Array, " M1"], component: Int[Array, " n"], components: int
) -> tuple[Int[Array, " K1"], Int[Array, " n"], Int[Array, " n"]]:
    """The pairs of each component: where they begin, which pairs they are, and of which clouds; in
    the order of the clouds.
    """
    order = np.argsort(component, kind="stable")
    cloud = np.repeat(np.arange(len(begin) - 1), np.diff(begin))
    return (
        np.concatenate([[0], np.cumsum(np.bincount(component, minlength=components))]),
        order,
        cloud[order],
    )

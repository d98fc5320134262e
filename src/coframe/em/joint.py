# SPDX-License-Identifier: MIT
"""The joint pose step: all poses together, the means eliminated.

The paper moves each cloud against means that the cloud itself helped to place, so a cloud is kept
back by its own points, the more so the more components there are. Here Q, the expected
log-likelihood given the posteriors, is maximised over all poses and all means at once. Given the
poses, the best mean of a component is the mean of what all clouds see of it; put in, Q is a
function of the poses alone:

    Q(xi) = -1/2 sum_jki alpha_jik |x_ji(xi_j) - m_k(xi)|^2_{P_k},
    m_k(xi) = sum_ji alpha_jik x_ji(xi_j) / A_k

with x(xi) = exp(omega) (x - c) + c + tau, c the centre of the scene. One Gauss-Newton step needs
the moments only, whatever the number of points. The fixed points are the paper's. `loop.batch`
rejects a step that lowers the likelihood.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int

from coframe import geometry
from coframe.em import joint_kernels, joint_sparse
from coframe.em.constraints import UNCONSTRAINED, Constraints
from coframe.em.joint_sparse import (
    DAMPING,
    LEAST_INFORMATION,
    NOT_FINITE,
    SparseEquations,
    entries_of,
)
from coframe.em.mixture import Mixture
from coframe.em.moments import Moments
from coframe.em.recipe import MODEL, ModelRecipe
from coframe.types import Array, Poses

# [size] Components at a time: bounds the memory that many clouds take.
CHUNK = 512
# [guard] Share of the upper bound of H's diagonal that regularises clouds which share no component.
TRACE = 1e-12
# [limit] Points of a cloud on components that others see: with less than one, its pose is unknown.
MIN_SHARED = 1.0
# [guard] Extents or radians: steps are clipped to this; only a singular system asks for more.
LONGEST = 1e4


def softened(
    covariances: Float[Array, "K D D"], slide: float, recipe: ModelRecipe = MODEL
) -> Float[Array, "K D D"]:
    """Precisions that let points slide along the surface of a flat component.

    The tangential extent of a component says how long a patch of surface is, not how well its
    points are known; at full strength it keeps the clouds from sliding into place. The flatter a
    component, the softer its tangents: by `slide` times the ratio of its thickness to its width,
    squared; round components stay as they are.
    """
    values, vectors = np.empty(covariances.shape[:2]), np.empty(covariances.shape)
    joint_kernels.principal(covariances, values, vectors)
    thickness = values.min(1, keepdims=True)
    soft = np.clip(slide * thickness / values, recipe.min_tangent, 1)
    softness = np.where(values > thickness, soft, 1)
    return (vectors * (softness / values)[:, None]) @ np.swapaxes(vectors, 1, 2)


@dataclass(frozen=True)
class System:
    """The Gauss-Newton system of all clouds' twists (omega, tau) about the centre, at xi = 0.

    Written down (`DenseEquations`), or, of very many clouds, solved through the model
    (`joint_sparse.SparseEquations`); both give the same numbers to rounding.
    """

    moments: Moments
    precisions: Float[Array, "K D D"]
    centre: Float[Array, " D"]
    poses: Poses
    constraints: Constraints = UNCONSTRAINED
    recipe: ModelRecipe = MODEL

    @cached_property
    def equations(self) -> "DenseEquations | SparseEquations":
        """Matrix and gradient of -Q, priors and targets included."""
        M, K = self.moments.mass.shape
        chosen = self.recipe.sparse
        sparse = joint_sparse.pays(M, K) if chosen is None else chosen
        in_space, D = self._in_space(), len(self.centre)
        if self.constraints.targets:  # which couple clouds directly, not through the model
            dense = DenseEquations.of(self.moments.mass, *in_space, D)
            for target in self.constraints.targets:
                dense.couple(target.clouds, *target.normal_equations(self.poses, self.centre))
            return self._with_priors(dense)
        kind = SparseEquations if sparse else DenseEquations
        return self._with_priors(kind.of(self.moments.mass, *in_space, D))

    def _with_priors(
        self, equations: "DenseEquations | SparseEquations"
    ) -> "DenseEquations | SparseEquations":
        for prior in self.constraints.priors:
            equations.add(
                prior.cloud, *prior.normal_equations(self.poses[prior.cloud], self.centre)
            )
        return equations

    @property
    def gradient(self) -> Float[Array, "M P"]:
        """The gradient of -Q, priors included."""
        return self.equations.gradient

    def bare_gradient(self) -> Float[Array, "M P"]:
        """The gradient of -Q without priors, where the matrix is not needed."""
        M, K = self.moments.mass.shape
        own, g, W = np.zeros((M, 6, 6)), np.zeros(6 * M), np.empty((3, 6 * M))
        in_space = self._in_space()
        for k in range(K):
            joint_kernels.joint_blocks(self.moments.mass, *in_space, k, k + 1, own, g, W)
        return g.reshape(M, 6)[:, entries_of(len(self.centre))]

    @property
    def allowed(self) -> Bool[Array, "M P"]:
        """Which entries of the twists may differ from zero."""
        return self.constraints.allowed(len(self.poses), len(self.centre))

    def motions(self, stride: float = 1.0) -> Poses:
        """The motions of all clouds that one Gauss-Newton step asks for, `stride` times as long."""
        return geometry.about(geometry.exp(self.twists(stride=stride)), self.centre)

    def twists(
        self, *, score: Float[Array, "M P"] | None = None, stride: float = 1.0
    ) -> Float[Array, "M P"]:
        """The step as twists about the centre, clipped, less the common motion where that is free.

        `score` takes the place of the gradient.
        """
        right = self.gradient if score is None else score
        gauge_free = self.constraints.gauge_free
        extra = TRACE * self.stiffness()
        found = stride * self.equations.solve(-right, extra, self.allowed, gauge_free)
        found = found * min(1.0, LONGEST / max(float(np.abs(found).max()), LONGEST))
        return found - found.mean(0) if gauge_free else found

    def covariances(self) -> Float[Array, "M P P"]:
        """The covariance of each cloud's twist.

        Zero where a cloud may not move, and for the common motion where that is free. Clouds that
        nothing constrains are no part of the average that takes the place of a fixed cloud: it
        would be as uncertain as they are.
        """
        gauge_free = self.constraints.gauge_free
        constrained = (self._shared() > MIN_SHARED) | self.constraints.observed(len(self.poses))
        if gauge_free and not constrained.all():
            free = self.constraints.allowed(1, len(self.centre))[0]
            own = np.tile(np.diag(free / LEAST_INFORMATION), (len(self.poses), 1, 1))
            if constrained.any():
                rest = replace(
                    self,
                    moments=self.moments.only(constrained),
                    poses=self.poses[constrained],
                    constraints=self.constraints.only(constrained),
                )
                own[constrained] = rest.covariances()
            return own
        return self.equations.covariances(self.allowed, gauge_free)

    def _shared(self) -> Float[Array, " M"]:
        """How many points of each cloud lie on components that others see, too."""
        mass = self.moments.mass
        total = np.maximum(mass.sum(0), np.finfo(float).tiny)
        return (mass * (1 - mass / total)).sum(1)

    def stiffness(self) -> Float[Array, "M P"]:
        """An upper bound of the diagonal of H.

        Of a cloud that shares no component, H is nothing but rounding; a tiny multiple of this
        regularises it.
        """
        D, P = len(self.centre), geometry.degrees_of_freedom(len(self.centre))
        firmness = np.trace(self.precisions, axis1=1, axis2=2)
        arm = ((self.moments.about - self.centre) ** 2).sum(1)
        mass = self.moments.mass
        both = np.stack([mass @ (firmness * arm), mass @ firmness], 1)
        return np.repeat(both, [P - D, D], axis=1)

    def _in_space(
        self,
    ) -> tuple[
        Float[Array, "M K 3"], Float[Array, "M K 3 3"], Float[Array, "K 3"], Float[Array, "K 3 3"]
    ]:
        """First and second moments, arms from the centre to the means, and precisions.

        What lies in the plane is taken as z = 0.
        """
        M, K, D = self.moments.first.shape
        arm = self.moments.about - self.centre
        if D == 3:
            return self.moments.first, self.moments.second, arm, self.precisions
        first, second = np.zeros((M, K, 3)), np.zeros((M, K, 3, 3))
        arms, P = np.zeros((K, 3)), np.tile(np.eye(3), (K, 1, 1))
        first[..., :D], second[..., :D, :D] = self.moments.first, self.moments.second
        arms[:, :D], P[:, :D, :D] = arm, self.precisions
        return first, second, arms, P


@dataclass(frozen=True)
class DenseEquations:
    """Matrix and gradient of -Q, all clouds' twists in a row."""

    H: Float[Array, "MP MP"]
    gradient: Float[Array, "M P"]

    @classmethod
    def of(
        cls,
        mass: Float[Array, "M K"],
        first: Float[Array, "M K 3"],
        second: Float[Array, "M K 3 3"],
        arm: Float[Array, "K 3"],
        precisions: Float[Array, "K 3 3"],
        dimension: int,
    ) -> "DenseEquations":
        """From moments in space."""
        M, K = mass.shape
        own, g, H = np.zeros((M, 6, 6)), np.zeros(6 * M), np.zeros((6 * M, 6 * M))
        rows, product = np.empty((3 * min(K, CHUNK), 6 * M)), np.empty_like(H)
        for start in range(0, K, CHUNK):
            stop = min(start + CHUNK, K)
            W = rows[: 3 * (stop - start)]
            joint_kernels.joint_blocks(mass, first, second, arm, precisions, start, stop, own, g, W)
            H -= np.matmul(W.T, W, out=product)
        each, block = np.arange(M), np.arange(6)
        own += np.swapaxes(own, 1, 2)  # only the upper triangles were built
        own[:, block, block] /= 2
        H.reshape(M, 6, M, 6)[each, :, each] += own
        entries = entries_of(dimension)
        if len(entries) < 6:
            rows = (6 * np.arange(M)[:, None] + entries).ravel()
            H, g = H[np.ix_(rows, rows)], g[rows]
        return cls(H, g.reshape(M, -1))

    def add(
        self, cloud: int, information: Float[Array, "P P"], gradient: Float[Array, " P"]
    ) -> None:
        """Add a prior on one cloud's twist, in place."""
        P = len(gradient)
        j = slice(P * cloud, P * cloud + P)
        self.H[j, j] += information
        self.gradient[cloud] += gradient

    def couple(
        self,
        clouds: Int[Array, " n"],
        information: Float[Array, "n P n P"],
        gradient: Float[Array, "n P"],
    ) -> None:
        """Add what is known of the twists of several clouds together, in place."""
        P = self.gradient.shape[1]
        rows = (P * clouds[:, None] + np.arange(P)).ravel()
        self.H[np.ix_(rows, rows)] += information.reshape(len(rows), -1)
        self.gradient[clouds] += gradient

    def solve(
        self,
        right: Float[Array, "M P"],
        extra: Float[Array, "M P"],
        allowed: Bool[Array, "M P"],
        gauge_free: bool,
    ) -> Float[Array, "M P"]:
        """H^-1 right with `extra` on the diagonal, of the entries that are allowed to move."""
        free = allowed.ravel()
        H = self.regularised(extra.ravel(), gauge_free)
        found = np.zeros(right.size)
        found[free] = _solve(_part(H, free), right.ravel()[free])
        return found.reshape(right.shape)

    def covariances(self, allowed: Bool[Array, "M P"], gauge_free: bool) -> Float[Array, "M P P"]:
        """The blocks of H^-1 on the diagonal, less the common motion where that is free.

        The rest of H^-1 is needed for that motion only: its mean over the clouds, which has P rows.
        """
        M, P = self.gradient.shape
        whole = self.inverse(allowed, gauge_free)
        each = np.arange(M)
        blocks = whole.reshape(M, P, M, P)[each, :, each]
        if gauge_free:
            # One row of blocks stands for all, which are equal. In the plane, where H is small,
            # each cloud has its own: BLAS rounds the last rows of an odd number in another way.
            own = each if P == 3 else np.zeros(M, int)
            R = int(own[-1]) + 1
            down = np.tile(np.eye(P), (R, M)) / M
            across = np.tile(np.eye(P), (M, R)) / M
            rows = down @ whole
            blocks = (
                blocks
                - rows.reshape(R, P, M, P)[own, :, each]
                - (whole @ across).reshape(M, P, R, P)[each, :, own]
                + (rows @ across).reshape(R, P, R, P)[own, :, own]
            )
        return (blocks + np.swapaxes(blocks, 1, 2)) / 2

    def inverse(self, allowed: Bool[Array, "M P"], gauge_free: bool) -> Float[Array, "MP MP"]:
        """H^-1 of the entries that are allowed to move, zeros for the others."""
        free = allowed.ravel()
        H = self.regularised(np.full(free.size, LEAST_INFORMATION), gauge_free)
        whole = _invert(_part(H, free))
        if free.all():
            return whole
        found = np.zeros((free.size, free.size))
        found[np.ix_(free, free)] = whole
        return found

    def regularised(self, extra: Float[Array, " MP"], gauge_free: bool) -> Float[Array, "MP MP"]:
        """H with `extra` on its diagonal, damped.

        Where it is free, the motion that all clouds share gets a stiffness. That motion changes
        nothing (the mixture follows it), and without the stiffness H would be singular.
        """
        M, P = self.gradient.shape
        H = self.H.copy()  # the one copy: with many clouds H is the largest array of a run
        diagonal = np.einsum("ii->i", H)
        diagonal += extra
        diagonal += DAMPING * diagonal + np.finfo(float).tiny
        if gauge_free:
            unit = 1 / np.sqrt(M)
            stiffness = diagonal.mean() * unit * unit
            for p in range(P):
                H[p::P, p::P] += stiffness
        return H


def _part(H: Float[Array, "n n"], free: Bool[Array, " n"]) -> Float[Array, "m m"]:
    """The rows and columns of the entries that are free to move; H itself where all are."""
    return H if free.all() else H[np.ix_(free, free)]


def _solve(H: Float[Array, "n n"], right: Float[Array, "..."]) -> Float[Array, "..."]:
    """H^-1 right, also where rounding has left H singular."""
    with suppress(np.linalg.LinAlgError):
        found = np.asarray(np.linalg.solve(H, right))
        if _finite(found):
            return found
    return np.asarray(_invert_singular(H) @ right)


def _invert(H: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """H^-1, as `_solve` has it for the unit matrix, which NumPy need not be given."""
    with suppress(np.linalg.LinAlgError):
        found = np.asarray(np.linalg.inv(H))
        if _finite(found):
            return found
    return _invert_singular(H)


def _finite(found: Float[Array, "..."]) -> bool:
    # False for NaN; where all clouds are fixed, there is nothing to find.
    return not found.size or bool(found.max() < NOT_FINITE and found.min() > -NOT_FINITE)


def _invert_singular(H: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """H^-1 where rounding has left H singular, as with clouds of very different sizes.

    Each of its rows counts alike, and unconstrained directions are left as soft as rounding allows.
    """
    unit = 1 / np.sqrt(np.maximum(np.diagonal(H), LEAST_INFORMATION))
    values, vectors = np.linalg.eigh(unit[:, None] * H * unit)
    values = np.maximum(values, len(H) * np.finfo(float).eps * max(values[-1], 1.0))
    return np.asarray(unit[:, None] * ((vectors / values) @ vectors.T) * unit)


@dataclass(frozen=True)
class JointStep:
    """The pose step of EM, see `loop.PoseStep`."""

    constraints: Constraints = UNCONSTRAINED
    firm: bool = False  # spheres: nothing slides
    # Softened precisions of a mixture that does not change, where they are known.
    precisions: Float[Array, "K D D"] | None = None
    recipe: ModelRecipe = MODEL

    def __call__(
        self, moments: Moments, poses: Poses, mixture: Mixture, stride: float
    ) -> tuple[Poses, Poses]:
        """New poses, and the motions that lead to them."""
        if stride == 0 or self.firm:
            precisions = np.linalg.inv(mixture.covariances)
        elif self.precisions is not None:
            precisions = self.precisions
        else:
            precisions = softened(mixture.covariances, self.recipe.slide, self.recipe)
        system = System(moments, precisions, mixture.centre, poses, self.constraints, self.recipe)
        motions = system.motions(max(stride, 1.0))
        return motions @ poses, motions

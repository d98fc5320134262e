# SPDX-License-Identifier: MIT
"""`fuse`: many sparse copies of one structure, or of a few, into one frame each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.spatial.transform import Rotation
from scipy.special import logsumexp

from coframe.em.mixture import Mixture
from coframe.errors import InputError
from coframe.geometry import pose, transform
from coframe.particles.density_kernels import crowding
from coframe.particles.fusion import Fit, Fusion, Structure
from coframe.particles.recipe import PLANE, SPACE, FuseRecipe
from coframe.particles.resolution import fourier_correlation, resolution
from coframe.particles.search import (
    RIVALS,
    Found,
    Level,
    Motions,
    Particles,
    no_symmetry,
    outlier_share,
    place,
    sample,
    sweep,
)
from coframe.particles.sites import find_sites
from coframe.particles.symmetry import find_symmetry, imposed_symmetry, likeness
from coframe.threads import available_cores, pool, quiet_blas
from coframe.types import Array, Poses

# [limit] Particles that a structure can be fused from.
FEWEST_PARTICLES = 4
# [limit] Points of a particle.
FEWEST_POINTS = 3
# [limit] Radii from the centre of a particle: farther points belong to no structure.
FARTHEST = 4.0
# [limit] Classes of structures.
MOST_CLASSES = 10
# [limit] Orders of symmetry that are looked for.
ORDERS = tuple(range(2, 13))
# [size] Random starts side by side, and at most: while none of them shows the same structure as the
# best, as many again are made.
CHAINS, MOST_CHAINS = 4, 16
# [size] Particles of a random start at most.
START_PARTICLES = 100
# [size] Particles left out of the random starts that judge them.
VALIDATION = 40
# [size] Points of a particle that the search over all rotations uses.
SEARCH_POINTS = 200
# [size] Sweeps in a row without a better score after which the poses are settled, and sweeps at
# most.
PATIENCE, MOST_SWEEPS = 3, 40
# [size] Share by which a better score is higher at least.
MIN_RISE = 1e-3
# [size] Random halvings of the particles whose Fourier correlations are averaged; with one, the
# resolution of the logos is 3.6 to 4.3 nm by chance.
SPLITS = 8
# [limit] Log odds by which a pose must beat every other one: one in 200 is wrong at the limit.
MIN_MARGIN = float(np.log(200))
# [limit] Robust standard deviations below the typical fit: one in 30,000 of normal deviates.
MAX_MISFIT = 4.0

OnStep = Callable[[str, float], object]  # what is done, and the share of the work before it


def fuse(
    particles: Sequence[Array],
    sigma: Sequence[Array] | float | None = None,
    symmetry: int = 1,
    *,
    classes: int = 1,
    template: Array | None = None,
    seed: int = 0,
    threads: int | None = None,
    on_step: OnStep = lambda what, share: None,
) -> Fusion:
    """Fuse many sparse, noisy copies of one structure, with or without a template.

    Each particle may be turned and shifted arbitrarily and may miss labels. Random starts are
    sampled on few particles and judged on others; then all particles are searched against the
    structure made of all others, until it no longer changes.

    Parameters
    ----------
    particles : sequence of arrays (N_j, D)
        Localisations, D = 2 or 3.
    sigma : float or sequence of arrays, optional
        Standard deviation of each localisation in the particles' unit: a number for all, or an
        array for each particle: (N_j,), (N_j, 1), (N_j, D) along its axes, or in space (N_j, 2),
        lateral and axial. None: unknown; sites then include the noise.
    symmetry : int, optional
        Impose turns of this order about an axis that is found. 1: none; a symmetry is then reported
        and not imposed.
    classes : int, optional
        Structures that the particles are divided between, each with its own frame.
    template : array (K, D), optional
        Sites of the structure in the particles' unit, instead of random starts. It is a start only:
        the result is made of the particles.
    seed : int, optional
        Of everything that is drawn at random.
    threads : int, optional
        None: all cores. The result does not depend on it.
    on_step : callable, optional
        Called with what is done next and the share of the work that is done.

    Returns
    -------
    Fusion

    Raises
    ------
    InputError
        If particles are too few, too small, of different dimension or not finite.

    Examples
    --------
    >>> scans = coframe.simulate.particles(np.random.default_rng(0), kind="letters")
    >>> fusion = coframe.fuse(scans.clouds, scans.sigma)
    >>> fusion.poses.shape
    (50, 3, 3)
    """
    clouds, noise = _checked(particles, sigma)
    if symmetry not in (1, *ORDERS):
        raise InputError(f"symmetry: expected 1 to {ORDERS[-1]}, found {symmetry}")
    if not 1 <= classes <= min(MOST_CLASSES, len(clouds) // FEWEST_PARTICLES):
        raise InputError(
            f"classes: expected 1 to {min(MOST_CLASSES, len(clouds) // FEWEST_PARTICLES)} for"
            f" {len(clouds)} particles, found {classes}"
        )
    if template is not None:
        template = _checked_template(template, clouds[0].shape[1])
        if classes > 1:
            raise InputError(
                "template: expected one class, found classes > 1; leave one of them out"
            )
    threads = threads or available_cores()
    recipe = PLANE if clouds[0].shape[1] == 2 else SPACE
    with quiet_blas():
        return _fuse(clouds, noise, symmetry, classes, template, seed, threads, recipe, on_step)


def _checked(
    particles: Sequence[Array], sigma: Sequence[Array] | float | None
) -> tuple[list[Float[Array, "_ D"]], list[Float[Array, "_ D"]]]:
    """Points and standard deviations along the axes, in double precision."""
    clouds = [np.asarray(points, float) for points in particles]
    if len(clouds) < FEWEST_PARTICLES:
        raise InputError(
            f"particles: expected at least {FEWEST_PARTICLES}, found {len(clouds)}; for few clouds"
            " use register"
        )
    for j, points in enumerate(clouds):
        if points.ndim != 2 or points.shape[1] not in (2, 3) or len(points) < FEWEST_POINTS:
            raise InputError(
                f"particle {j}: expected at least {FEWEST_POINTS} rows of 2 or 3 coordinates, found"
                f" shape {points.shape}; leave it out"
            )
        if points.shape[1] != clouds[0].shape[1]:
            raise InputError(
                f"particle {j}: expected {clouds[0].shape[1]} coordinates as in particle 0, found"
                f" {points.shape[1]}"
            )
        if not np.isfinite(points).all():
            raise InputError(f"particle {j}: coordinates are not finite; leave those rows out")
    if sigma is None or isinstance(sigma, int | float):
        return clouds, [np.full(points.shape, float(sigma or 0)) for points in clouds]
    if len(sigma) != len(clouds):
        raise InputError(
            f"sigma: expected {len(clouds)} arrays, one a particle, found {len(sigma)}"
        )
    noise = []
    for j, (points, given) in enumerate(zip(clouds, sigma, strict=True)):
        values = np.asarray(given, float)
        values = (
            values.reshape(len(values), -1) if values.ndim else np.full((len(points), 1), values)
        )
        if points.shape[1] == 3 and values.shape[1] == 2:
            values = values[:, [0, 0, 1]]
        if len(values) != len(points) or values.shape[1] not in (1, points.shape[1]):
            raise InputError(
                f"sigma of particle {j}: expected one value, or one an axis, for each of"
                f" {len(points)} points, found shape {np.shape(given)}"
            )
        if not (np.isfinite(values) & (values >= 0)).all():
            raise InputError(f"sigma of particle {j}: expected finite values that are not negative")
        noise.append(np.broadcast_to(values, points.shape))
    return clouds, noise


def _checked_template(template: Array, dimension: int) -> Float[Array, "K D"]:
    sites = np.asarray(template, float)
    if sites.ndim != 2 or sites.shape[1] != dimension or len(sites) < FEWEST_POINTS:
        raise InputError(
            f"template: expected at least {FEWEST_POINTS} rows of {dimension} coordinates, as the"
            f" particles have, found shape {sites.shape}"
        )
    if not np.isfinite(sites).all() or not np.ptp(sites, axis=0).any():
        raise InputError("template: expected finite coordinates that are not all the same")
    return sites


def _fuse(
    clouds: list[Float[Array, "_ D"]],
    noise: list[Float[Array, "_ D"]],
    symmetry: int,
    classes: int,
    template: Float[Array, "K D"] | None,
    seed: int,
    threads: int,
    recipe: FuseRecipe,
    on_step: OnStep,
) -> Fusion:
    rng = np.random.default_rng(seed)
    given, centres, unit = _prepare(clouds, noise, recipe)
    D = given.dimension
    origin = np.zeros(D) if template is None else template.mean(0)
    radius = float(np.quantile(np.linalg.norm(given.points, axis=1), 0.99))
    if template is not None:
        radius = max(radius, float(np.linalg.norm(template - origin, axis=1).max()) / unit)
    radius = min(radius, FARTHEST)
    thin = given.thinned(SEARCH_POINTS, rng)
    coarse = Level(thin, recipe.coarse_blur, recipe, radius)
    fine = Level(given, recipe.fine_blur, recipe, radius)
    on_step("random starts" if template is None else "placing on the template", 0.0)
    start = (
        _start(given, thin, radius, recipe, rng, threads, _starts(on_step, 0.0, 0.5 / classes))
        if template is None
        else _start_from((template - origin) / unit, coarse, fine, radius, recipe, rng, threads)
    )
    models = [start.motions]
    labels = np.zeros(len(given), int)
    reproduced = start.reproduced
    for number in range(1, classes):
        on_starts = _starts(on_step, number / (2 * classes), (number + 1) / (2 * classes), number)
        on_starts(0)
        members = _badly_fitting(coarse, fine, models, labels, classes, recipe, rng, threads)
        subsets = given.subset(members), thin.subset(members)
        new = _start(*subsets, radius, recipe, rng, threads, on_starts)
        motions = Motions(models[0].R.copy(), models[0].t.copy())
        motions.R[members], motions.t[members] = new.motions.R, new.motions.t
        models.append(motions)
        labels[members] = number
        reproduced = min(reproduced, new.reproduced)
    groups = [no_symmetry()] * classes
    agreement = [1.0] * classes
    search = coarse, fine, recipe, rng, threads
    found, labels = _settle(*search, models, labels, groups, _progress(on_step, 0.5, 0.7))
    if symmetry > 1:
        for c in range(classes):
            members = np.flatnonzero(labels == c)
            level = Level(given.subset(members), recipe.fine_blur, recipe, radius)
            groups[c], agreement[c] = imposed_symmetry(
                level, _best(found[c]).subset(members), symmetry, recipe
            )
        models = [_best(each) for each in found]
        found, labels = _settle(*search, models, labels, groups, _progress(on_step, 0.7, 0.9))
    on_step("comparing poses", 0.9)
    models = [_best(each) for each in found]
    outliers = outlier_share(fine, models, groups, labels)
    found = [
        sweep(
            coarse, fine, models[c], groups[c], recipe, rng, threads, labels == c, RIVALS, outliers
        )
        for c in range(classes)
    ]
    on_step("symmetry, sites and resolution", 0.95)
    models = [_best(each) for each in found]
    scores = _scores(found)
    # Class 0 is the largest.
    order = np.argsort(-np.bincount(labels, minlength=classes), kind="stable")
    labels = np.argsort(order)[labels]
    found = [found[c] for c in order]
    models = [models[c] for c in order]
    groups = [groups[c] for c in order]
    agreement = [agreement[c] for c in order]
    scores = scores[order]

    warnings = []
    sure = reproduced >= recipe.min_likeness
    if not sure:
        warnings.append(
            "no two random starts show the same structure, so that it is not known to be right and"
            " no particle is called aligned; give more particles, or compare with another seed"
        )
    fits: list[Fit | None] = [None] * len(given)
    poses = np.empty((len(given), D + 1, D + 1))
    structures = []
    for c in range(classes):
        members = np.flatnonzero(labels == c)
        own = given.subset(members)
        level = Level(own, recipe.fine_blur, recipe, radius)
        motions = models[c].subset(members)
        highest, symmetries, _ = find_symmetry(level, motions, recipe, ORDERS)
        where = f"class {c}: " if classes > 1 else ""
        if symmetry > 1:
            if highest % symmetry:
                symmetries = groups[c]
            elif len(symmetries.t) > symmetry:
                warnings.append(
                    f"{where}the structure is carried onto itself by {len(symmetries.t)} motions,"
                    f" more than symmetry {symmetry} has: each pose is one of these"
                )
            if agreement[c] < recipe.min_symmetry:
                warnings.append(
                    f"{where}symmetry {symmetry} was imposed, but the structure without it agrees"
                    f" with it only to {agreement[c]:.0%}; compare with symmetry=1"
                )
        elif highest > 1:
            warnings.append(
                f"{where}the structure is carried onto itself by turns of order {highest}: each"
                f" pose is one of {len(symmetries.t)} that fit equally; symmetry={highest}"
                f" (--symmetry {highest}) imposes it"
            )
        rival = np.delete(scores, c, axis=0).max(0)[members] if classes > 1 else None
        judged = _judge(level, [found[c][j] for j in members], symmetries, rival, recipe, sure=sure)
        for j, fit in zip(members, judged, strict=True):
            fits[j] = fit
        R = motions.R[:, :D, :D]
        poses[members] = pose(
            R, origin + unit * motions.t[:, :D] - np.einsum("jde,je->jd", R, centres[members])
        )
        used = np.array([fit.verdict != "failed" for fit in judged])
        # Two halves need two particles.
        chosen = np.flatnonzero(used) if used.sum() > 1 else np.arange(len(members))
        sites = find_sites(
            own.subset(chosen), motions.subset(chosen), groups[c], recipe, radius, threads
        )
        mixture = Mixture.spheres(
            origin + unit * sites.means[:, :D],
            unit**2 * sites.variances,
            sites.priors,
            float(max(1 - sites.priors.sum(), 0)) / (2 * unit * radius) ** D,
        )
        picked = members[chosen]
        frequencies, correlations = halves(
            [clouds[j] for j in picked], poses[picked], seed, 4 * unit * radius
        )
        # About the origin of the frame, which a template gives.
        shifts = unit * symmetries.t[:, :D] + origin - symmetries.R[:, :D, :D] @ origin
        structures.append(
            Structure(
                mixture=mixture,
                visibility=_visibility(
                    [clouds[j] for j in members],
                    [noise[j] for j in members],
                    poses[members],
                    mixture,
                ),
                resolution=resolution(frequencies, correlations),
                correlation=np.stack([frequencies, correlations], 1),
                symmetry_found=highest,
                symmetries=pose(symmetries.R[:, :D, :D], shifts),
            )
        )
    return Fusion(
        poses=poses,
        verdicts=tuple(fit for fit in fits if fit is not None),
        classes=labels,
        structures=tuple(structures),
        symmetry=symmetry,
        scores=start.scores,
        reproduced=reproduced,
        seed=seed,
        warnings=tuple(warnings),
    )


def _prepare(
    clouds: list[Float[Array, "_ D"]], noise: list[Float[Array, "_ D"]], recipe: FuseRecipe
) -> tuple[Particles, Float[Array, "M D"], float]:
    """Particles about their centres in radii; the centres and the radius.

    Points that are localised worse than the particle is wide count little for its centre, and
    points of one bright spot count as one.
    """
    D = clouds[0].shape[1]
    first = np.concatenate([[0], np.cumsum([len(points) for points in clouds])])
    middles = np.array([np.median(points, axis=0) for points in clouds])
    local = np.zeros((len(np.concatenate(clouds)), 3))
    local[:, :D] = np.concatenate([p - c for p, c in zip(clouds, middles, strict=True)])
    sigma = np.concatenate(noise)
    spread = float(np.median((local**2).sum(1)))
    if spread == 0:
        raise InputError("particles: all points of most particles coincide; give localisations")
    crowd = crowding(local, first, recipe.coarse_blur * np.sqrt(spread))
    weights = spread / (spread + (sigma**2).sum(1)) / crowd
    weights[(local**2).sum(1) > FARTHEST**2 * spread] = 0
    starts = first[:-1]
    sums = np.add.reduceat(weights[:, None] * local, starts)
    total = np.add.reduceat(weights, starts)
    centres = sums / np.maximum(total, np.finfo(float).tiny)[:, None]
    local -= np.repeat(centres, np.diff(first), axis=0)
    unit = float(np.sqrt(_weighted_median((local**2).sum(1), weights)))
    variances = np.zeros_like(local)
    variances[:, :D] = (sigma / unit) ** 2
    return Particles(local / unit, variances, first, D), middles + centres[:, :D], unit


def _weighted_median(values: Float[Array, " N"], weights: Float[Array, " N"]) -> float:
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(below, below[-1] / 2)])


def _progress(on_step: OnStep, first: float, last: float) -> Callable[[int], object]:
    """Report sweeps as the part of the work from one share to another."""
    return lambda done: on_step(
        f"sweep {done + 1}", first + (last - first) * min(done / MOST_SWEEPS, 1)
    )


def _starts(on_step: OnStep, first: float, last: float, number: int = 0) -> Callable[[int], object]:
    """Report random starts as the part of the work from one share to another.

    Most often the first chains and their checks are enough; each further round takes half of what
    is left.
    """

    def show(done: int) -> None:
        rounds, within = divmod(done, 2 * CHAINS)
        share = 1 - 0.5**rounds * (1 - 0.5 * within / (2 * CHAINS))
        of = f" of class {number}" if number else ""
        on_step(f"random start {done + 1}{of}", first + (last - first) * share)

    return show


def _settle(
    coarse: Level,
    fine: Level,
    recipe: FuseRecipe,
    rng: np.random.Generator,
    threads: int,
    models: list[Motions],
    labels: Int[Array, " M"],
    groups: list[Motions],
    on_sweep: Callable[[int], object] = lambda done: None,
) -> tuple[list[list[Found]], Int[Array, " M"]]:
    """Sweep over all particles, each in every class, until the score no longer rises.

    Returns the poses found in each class, and the class of each particle.
    """
    classes = len(models)
    highest, last_rise = -np.inf, 0
    for done in range(MOST_SWEEPS):
        on_sweep(done)
        found = [
            sweep(coarse, fine, models[c], groups[c], recipe, rng, threads, labels == c)
            for c in range(classes)
        ]
        models = [_best(each) for each in found]
        scores = _scores(found)
        new_labels = np.argmax(scores, axis=0)
        if np.bincount(new_labels, minlength=classes).min() >= FEWEST_PARTICLES:
            labels = new_labels
        score = float(scores.max(axis=0).mean())
        if score > highest + MIN_RISE * abs(highest) or done == 0:
            highest, last_rise = score, done
        if done - last_rise >= PATIENCE:
            break
    return found, labels


def _scores(found: list[list[Found]]) -> Float[Array, "C M"]:
    """Score of each particle's best pose in each class."""
    return np.array([[f.scores[0] for f in each] for each in found])


def _best(found: list[Found]) -> Motions:
    return Motions(np.array([f.R[0] for f in found]), np.array([f.t[0] for f in found]))


@dataclass(frozen=True)
class Start:
    """Motions of all particles, placed on the best random start.

    Attributes
    ----------
    motions : Motions
    scores : array (S,)
        Of each start on particles left out.
    reproduced : float
        How like the best start the one most like it is; see `symmetry.likeness`.
    """

    motions: Motions
    scores: Float[Array, " S"]
    reproduced: float


def _start(
    given: Particles,
    thin: Particles,
    radius: float,
    recipe: FuseRecipe,
    rng: np.random.Generator,
    threads: int,
    on_starts: Callable[[int], object],
) -> "Start":
    """Random starts on some particles, checked on others; all particles placed on the best."""
    M = len(given)
    count = min(START_PARTICLES, max(M - VALIDATION, (M + 1) // 2))
    mixed = rng.permutation(M)
    own, others = np.sort(mixed[:count]), np.sort(mixed[count:][:VALIDATION])
    # Starts on the same particles agree where these have no structure; on different ones, they
    # agree on what both show.
    check = np.sort(mixed[count:][:count])
    levels = [
        (
            Level(thin.subset(chosen), recipe.coarse_blur, recipe, radius),
            Level(given.subset(chosen), recipe.fine_blur, recipe, radius),
        )
        for chosen in (own, others, np.arange(M), check)
    ]

    def settled(both: tuple[Level, Level], chosen: Int[Array, " m"]) -> list[Motions]:
        particles = thin.subset(chosen)
        starts = pool(threads).map(
            lambda s: sample(particles, recipe, radius, s)[0], rng.spawn(CHAINS)
        )
        labels = np.zeros(len(chosen), int)
        ends: list[Motions] = []
        for m in list(starts):
            on_starts(len(refined) + len(checks) + len(ends))
            found, _ = _settle(*both, recipe, rng, threads, [m], labels, [no_symmetry()])
            ends.append(_best(found[0]))
        return ends

    refined: list[Motions] = []
    checks: list[Motions] = []
    scores: list[float] = []
    reproduced = 0.0
    while len(refined) < MOST_CHAINS and reproduced < recipe.min_likeness:
        for motions in settled(levels[0], own):
            refined.append(motions)
            placed = place(*levels[1], (*levels[0], motions), recipe, rng, threads)
            scores.append(float(np.mean([f.scores[0] for f in placed])))
        checks += settled(levels[3], check)
        model = refined[int(np.argmax(scores))]
        reproduced = max(likeness(levels[0], model, levels[3], c, recipe) for c in checks)
    placed = place(*levels[2], (*levels[0], model), recipe, rng, threads)
    return Start(_best(placed), np.array(scores), reproduced)


def _start_from(
    sites: Float[Array, "K D"],
    coarse: Level,
    fine: Level,
    radius: float,
    recipe: FuseRecipe,
    rng: np.random.Generator,
    threads: int,
) -> Start:
    """All particles placed on a template, given in radii about its centre."""
    points = np.zeros((len(sites), 3))
    points[:, : sites.shape[1]] = sites
    one = Particles(points, np.zeros_like(points), np.array([0, len(sites)]), sites.shape[1])
    levels = (
        Level(one, recipe.coarse_blur, recipe, radius),
        Level(one, recipe.fine_blur, recipe, radius),
    )
    placed = place(coarse, fine, (*levels, no_symmetry()), recipe, rng, threads)
    return Start(_best(placed), np.zeros(0), 1.0)


def _badly_fitting(
    coarse: Level,
    fine: Level,
    models: list[Motions],
    labels: Int[Array, " M"],
    classes: int,
    recipe: FuseRecipe,
    rng: np.random.Generator,
    threads: int,
) -> Int[Array, " m"]:
    """The share of particles, one over the number of classes, that fits the present ones worst."""
    M = len(fine.particles)
    best = np.full(M, -np.inf)
    for c, motions in enumerate(models):
        found = sweep(coarse, fine, motions, no_symmetry(), recipe, rng, threads, labels == c)
        best = np.maximum(best, fit_of(fine, found))
    count = max(M // classes, FEWEST_PARTICLES)
    return np.sort(np.argsort(best, kind="stable")[:count])


def fit_of(fine: Level, found: list[Found]) -> Float[Array, " M"]:
    """Score of each particle's best pose, by the weight of its points."""
    rows = map(fine.particles.rows, range(len(found)))
    return np.array(
        [f.scores[0] / fine.weights[own].sum() for f, own in zip(found, rows, strict=True)]
    )


def _judge(
    fine: Level,
    found: list[Found],
    group: Motions,
    rival: Float[Array, " m"] | None,
    recipe: FuseRecipe,
    *,
    sure: bool,
) -> tuple[Fit, ...]:
    """A verdict per particle: does it fit as others do, and does its pose beat every other?

    `rival`: score of the best pose in another class.
    """
    fit = fit_of(fine, found)
    typical = np.median(fit)
    spread = 1.4826 * np.median(np.abs(fit - typical)) + np.finfo(float).tiny
    verdicts = []
    for j, modes in enumerate(found):
        here = margin_of(modes, group, recipe.coarse_blur)
        across = float("inf") if rival is None else float(modes.scores[0] - rival[j])
        misfit = float((typical - fit[j]) / spread)
        if misfit > MAX_MISFIT:
            word, reason = "failed", "the fit is far worse than is typical here"
        elif here < MIN_MARGIN:
            word, reason = "weak", "another pose fits about as well"
        elif across < MIN_MARGIN:
            word, reason = "weak", "another class fits about as well"
        elif not sure:
            word, reason = "weak", "the structure is not known to be right"
        else:
            word, reason = "aligned", "no other pose fits about as well"
        verdicts.append(Fit(word, reason, min(here, across), misfit))
    return tuple(verdicts)


def margin_of(modes: Found, group: Motions, separation: float) -> float:
    """Log odds of the best mode over all that differ from it by more than a symmetry."""
    places_R, places_t = modes.R[:1], modes.t[:1]
    rivals = []
    for number, (R, t, score) in enumerate(zip(modes.R, modes.t, modes.scores, strict=True)):
        turns = Rotation.from_matrix(places_R @ R.T).magnitude()
        apart = np.maximum(turns, np.linalg.norm(places_t - t, axis=1))
        if number == 0 or apart.min() > separation:
            # A mode that several climbs end in counts once.
            places_R = np.concatenate([places_R[number == 0 :], group.R @ R])
            places_t = np.concatenate([places_t[number == 0 :], group.R @ t + group.t])
            if number > 0:
                rivals.append(score)
    return float(modes.scores[0] - logsumexp(rivals)) if rivals else float("inf")


def halves(
    clouds: Sequence[Float[Array, "_ D"]], poses: Poses, seed: int, extent: float
) -> tuple[Float[Array, " F"], Float[Array, " F"]]:
    """Fourier correlation of two halves of the particles, averaged over random halvings."""
    rng = np.random.default_rng(seed)
    moved = [transform(T, cloud) for T, cloud in zip(poses, clouds, strict=True)]
    curves = []
    for _ in range(SPLITS):
        mixed = rng.permutation(len(clouds))
        sets = [
            np.concatenate([moved[j] for j in np.sort(part)]) for part in (mixed[::2], mixed[1::2])
        ]
        frequencies, correlations = fourier_correlation(sets[0], sets[1], extent)
        curves.append(correlations)
    return frequencies, np.mean(curves, axis=0)


def _visibility(
    clouds: list[Float[Array, "_ D"]],
    noise: list[Float[Array, "_ D"]],
    poses: Poses,
    mixture: Mixture,
) -> Float[Array, "M K"]:
    """Share of each particle's points that belong to each site; noise taken as isotropic."""
    D = mixture.dimension
    variances = mixture.covariances[:, 0, 0]
    shares = np.zeros((len(clouds), len(variances)))
    for j, (points, sigma) in enumerate(zip(clouds, noise, strict=True)):
        moved = transform(poses[j], points)
        square = ((moved[:, None] - mixture.means) ** 2).sum(2)
        whole = variances + (sigma**2).mean(1)[:, None]
        p = mixture.weights * np.exp(-square / (2 * whole)) / (2 * np.pi * whole) ** (D / 2)
        shares[j] = (p / (p.sum(1, keepdims=True) + mixture.outlier_density)).mean(0)
    return shares

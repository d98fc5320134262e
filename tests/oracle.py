# SPDX-License-Identifier: MIT
"""JRMPC straight from the paper, in its letters and with its loops: slow on purpose, and without
anything of coframe.

Points V[j][i], poses R[j], t[j], means mu[k], priors p[k] or, for each cloud its own, p[j][k].
sigma[k] is a variance, or a D x D matrix for the model of eqs. (1) to (7), before the paper
restricts it to spheres. Numbers of equations are the journal's. The densities are Decimals: their
exponential never underflows, so that no trick is needed where the paper has none.
"""

import decimal
from decimal import Decimal

import numpy as np

decimal.getcontext().Emin = decimal.MIN_EMIN


def beta(V, R, t, p, mu, sigma):
    """Eq. (9): beta_jik, density of component k at point i of cloud j, without (2 pi)^(-D/2)."""
    D = len(mu[0])
    p = np.broadcast_to(p, (len(V), len(mu)))
    spheres = np.ndim(sigma) == 1
    scale = [Decimal(float(s ** (D / 2) if spheres else np.linalg.det(s) ** 0.5)) for s in sigma]
    out = []
    for j in range(len(V)):
        out.append([])
        for i in range(len(V[j])):
            out[j].append([])
            x = R[j] @ V[j][i] + t[j]
            for k in range(len(mu)):
                y = x - mu[k]
                # the norm of eq. (7)
                square = y @ y / sigma[k] if spheres else y @ np.linalg.solve(sigma[k], y)
                out[j][i].append(
                    Decimal(float(p[j][k])) / scale[k] * Decimal(float(-square / 2)).exp()
                )
    return out


def alpha(beta, c):
    """Eq. (8): alpha_jik; c is the uniform term, gamma / (h (gamma + 1)).

    The last column is the outlier class.
    """
    c = Decimal(float(c))
    out = []
    for j in range(len(beta)):
        out.append(np.empty((len(beta[j]), len(beta[j][0]) + 1)))
        for i in range(len(beta[j])):
            denominator = sum(beta[j][i]) + c
            for k in range(len(beta[j][i])):
                out[j][i, k] = beta[j][i][k] / denominator
            out[j][i, -1] = c / denominator
    return out


def log_likelihood(beta, c, w=None):
    """The logarithm of eq. (1), per cloud, without (2 pi)^(-D/2); w[j][i] weighs the points."""
    out = []
    for j in range(len(beta)):
        out.append(0.0)
        for i in range(len(beta[j])):
            out[j] += (1 if w is None else w[j][i]) * float(
                (sum(beta[j][i]) + Decimal(float(c))).ln()
            )
    return np.array(out)


def sums(V, R, t, mu, alpha, w=None):
    """What the M-step needs of the points: the sums over i of alpha, alpha (x - mu) and
    alpha (x - mu)(x - mu)^T.
    """
    M, K, D = len(V), len(mu), len(mu[0])
    A, b, C = np.zeros((M, K)), np.zeros((M, K, D)), np.zeros((M, K, D, D))
    for j in range(M):
        for i in range(len(V[j])):
            for k in range(K):
                a = alpha[j][i, k] * (1 if w is None else w[j][i])
                y = R[j] @ V[j][i] + t[j] - mu[k]
                A[j, k] += a
                b[j, k] += a * y
                C[j, k] += a * np.outer(y, y)
    return A, b, C


def Lambda(alpha_j, sigma):
    """The diagonal matrix of eq. (10), lambda_jkk = (sum_i alpha_jik / sigma_k)^(1/2)."""
    K = len(sigma)
    out = np.zeros((K, K))
    for k in range(K):
        out[k, k] = (sum(alpha_j[i, k] for i in range(len(alpha_j))) / sigma[k]) ** 0.5
    return out


def W(alpha_j, V_j, K):
    """Eq. (11): the virtual points w_jk, as columns."""
    out = []
    for k in range(K):
        out.append(
            sum(alpha_j[i, k] * V_j[i] for i in range(len(V_j)))
            / sum(alpha_j[i, k] for i in range(len(V_j)))
        )
    return np.array(out).T


def rotation(M, L, W):
    """Eq. (12), and (13) for P_j, whose identity is K x K (the paper prints I_3)."""
    e = np.ones((len(L), 1))
    P = np.eye(len(L)) - L @ e @ e.T @ L / (e.T @ L @ L @ e)
    Ul, _, Urt = np.linalg.svd(M @ L @ P @ L @ W.T)
    S = np.eye(len(M))
    S[-1, -1] = np.linalg.det(Ul) * np.linalg.det(Urt)
    return Ul @ S @ Urt


def translation(M, L, W, R_j):
    """Eq. (14)."""
    e = np.ones(len(L))
    return (M - R_j @ W) @ L @ L @ e / np.trace(L @ L)


def means(V, R, t, alpha, K):
    """Eq. (15)."""
    out = []
    for k in range(K):
        numerator, denominator = 0, 0
        for j in range(len(V)):
            for i in range(len(V[j])):
                numerator = numerator + alpha[j][i, k] * (R[j] @ V[j][i] + t[j])
                denominator = denominator + alpha[j][i, k]
        out.append(numerator / denominator)
    return np.array(out)


def covariances(V, R, t, mu, alpha, epsilon2):
    """Eq. (16) before it is restricted to spheres."""
    D = len(mu[0])
    out = []
    for k in range(len(mu)):
        numerator, denominator = np.zeros((D, D)), 0
        for j in range(len(V)):
            for i in range(len(V[j])):
                y = R[j] @ V[j][i] + t[j] - mu[k]
                numerator = numerator + alpha[j][i, k] * np.outer(y, y)
                denominator = denominator + alpha[j][i, k]
        out.append(numerator / denominator + epsilon2 * np.eye(D))
    return np.array(out)


def variances(V, R, t, mu, alpha, epsilon2):
    """Eq. (16), with D for the paper's 3."""
    D = len(mu[0])
    out = []
    for k in range(len(mu)):
        numerator, denominator = 0, 0
        for j in range(len(V)):
            for i in range(len(V[j])):
                y = R[j] @ V[j][i] + t[j] - mu[k]
                numerator = numerator + alpha[j][i, k] * (y @ y)
                denominator = denominator + alpha[j][i, k]
        out.append(numerator / (D * denominator) + epsilon2)
    return np.array(out)


def priors(alpha, gamma):
    """Eqs. (18) and (19), with eta."""
    N = sum(len(alpha_j) for alpha_j in alpha)
    outliers = sum(alpha_j[i, -1] for alpha_j in alpha for i in range(len(alpha_j)))
    eta = (gamma + 1) * (N - outliers)
    K = alpha[0].shape[1] - 1
    return np.array(
        [
            sum(alpha_j[i, k] for alpha_j in alpha for i in range(len(alpha_j))) / eta
            for k in range(K)
        ]
    )


def batch(
    V,
    mu,
    *,
    sigma=None,
    R=None,
    t=None,
    gamma=None,
    epsilon2=1e-6,
    Q,
    update_priors=False,
    fixed_variances=0,
):
    """Algorithm 1 with the defaults of the authors' program.

    Returns R, t, mu, sigma, p, and the log-likelihood before each iteration.
    """
    M, (K, D) = len(V), mu.shape
    R = [np.eye(D)] * M if R is None else R
    t = [mu.mean(0) - V_j.mean(0) for V_j in V] if t is None else t
    if sigma is None:
        everything = np.concatenate([mu] + [V[j] @ R[j].T + t[j] for j in range(M)])
        sigma = sum((everything.max(0) - everything.min(0)) ** 2)
    sigma = np.full(K, sigma)
    p = np.full(K, 1 / (K + 1) if gamma is None else 1 / (K * (gamma + 1)))
    gamma = 1 / K if gamma is None else gamma
    h = 2 / np.mean(1 / sigma)
    c = gamma / (h * (gamma + 1))
    log_likelihoods = []
    for q in range(Q):
        b = beta(V, R, t, p, mu, sigma)
        a = alpha(b, c)
        log_likelihoods.append(
            log_likelihood(b, c).sum() - sum(map(len, V)) * D / 2 * np.log(2 * np.pi)
        )
        L = [Lambda(a[j], sigma) for j in range(M)]
        w = [W(a[j], V[j], K) for j in range(M)]
        R = [rotation(mu.T, L[j], w[j]) for j in range(M)]
        t = [translation(mu.T, L[j], w[j], R[j]) for j in range(M)]
        mu = means(V, R, t, a, K)
        if q >= fixed_variances:
            sigma = variances(V, R, t, mu, a, epsilon2)
        if update_priors:
            p = priors(a, gamma)
    return np.array(R), np.array(t), mu, sigma, p, np.array(log_likelihoods)


def incremental(
    V,
    R,
    t,
    mu,
    sigma,
    p,
    c,
    past_alpha,
    v,
    R_m,
    t_m,
    *,
    gamma,
    epsilon2=1e-6,
    Q,
    update_priors=False,
):
    """Algorithm 2; means, variances and priors are updated by sums over all points of all sets.

    V, R, t and past_alpha are the registered sets, their poses and their posteriors, which stay; v
    is the new set. The posterior has R v + t, where the paper prints R v - t.
    """
    K = len(mu)
    for _ in range(Q):
        a = alpha(beta([v], [R_m], [t_m], p, mu, sigma), c)[0]
        L, w = Lambda(a, sigma), W(a, v, K)
        R_m = rotation(mu.T, L, w)
        t_m = translation(mu.T, L, w, R_m)
        sets, turns, shifts, posteriors = [*V, v], [*R, R_m], [*t, t_m], [*past_alpha, a]
        mu = means(sets, turns, shifts, posteriors, K)
        sigma = variances(sets, turns, shifts, mu, posteriors, epsilon2)
        if update_priors:
            p = priors(posteriors, gamma)
    return R_m, t_m, mu, sigma, p, a

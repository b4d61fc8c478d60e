"""Oracles of densities, running sums, moments, and of slices replaced by index."""

import math

import numpy as np
from reference import gradient, reference

gammaln = np.vectorize(math.lgamma)


def density(name):
    """Registers the oracle of a density, given by its logarithm on parameters that fit."""

    def deco(log):
        @reference(f"_random_pdf_{name}")
        def pdf(x, *params, is_log=False):
            fit = [p.reshape(p.shape + (1,) * (x.ndim - p.ndim)) for p in params]
            y = np.broadcast_to(log(x, *fit), x.shape)
            return y if is_log else np.exp(y)

        return log

    return deco


density("uniform")(lambda x, low, high: -np.log(high - low))
density("normal")(lambda x, mu, s: -(((x - mu) / s) ** 2) / 2 - np.log(s * math.sqrt(2 * math.pi)))
density("gamma")(lambda x, a, b: a * np.log(b) + (a - 1) * np.log(x) - b * x - gammaln(a))
density("exponential")(lambda x, lam: np.log(lam) - lam * x)
density("poisson")(lambda x, lam: x * np.log(lam) - lam - gammaln(x + 1))


@density("negative_binomial")
def failures(x, k, p):
    ways = gammaln(x + k) - gammaln(x + 1) - gammaln(k)
    return ways + k * np.log(p) + x * np.log(1 - p)


@density("generalized_negative_binomial")
def dispersed(x, mu, alpha):
    return failures(x, 1 / alpha, 1 / (mu * alpha + 1))


@reference("_random_pdf_dirichlet")
def dirichlet(x, alpha, is_log=False):
    fit = alpha.reshape(alpha.shape[:-1] + (1,) * (x.ndim - alpha.ndim) + alpha.shape[-1:])
    y = ((fit - 1) * np.log(x) - gammaln(fit)).sum(-1) + gammaln(fit.sum(-1))
    return y if is_log else np.exp(y)


@reference("_np_cumsum")
def cumsum(x, axis=None, dtype=None):
    return np.cumsum(x, axis, dtype=dtype or x.dtype)


@reference("moments")
def moments(x, axes, keepdims=False):
    return np.atleast_1d(x.mean(axes, keepdims=keepdims)), np.atleast_1d(
        x.var(axes, keepdims=keepdims)
    )


@reference("_contrib_sign_ste")
def sign_ste(x):
    return np.sign(x)


@reference("_contrib_round_ste")
def round_ste(x):
    return np.sign(x) * np.floor(np.abs(x) + 0.5)


@gradient("_contrib_sign_ste", "_contrib_round_ste")
def straight_through(heads, x):
    return (heads[0],)


@reference("_contrib_allclose")
def allclose(a, b, rtol=1e-5, atol=1e-8, equal_nan=True):
    return np.array([int(np.allclose(a, b, rtol, atol, equal_nan))])


@reference("_contrib_index_copy")
def index_copy(old, index, new):
    y = old.copy()
    for i, row in zip(index.astype(int), new, strict=True):
        y[i] = row
    return y


@reference("_contrib_index_array")
def index_array(x, axes=None):
    axes = range(x.ndim) if axes is None else axes
    return np.stack([np.indices(x.shape)[a] for a in axes], -1)


@reference("_onehot_encode")
def onehot_encode(columns, like):
    return (np.arange(like.shape[1]) == columns[:, None]).astype(float)


@reference("fill_element_0index")
def fill_element_0index(x, values, columns):
    y = x.copy()
    y[np.arange(len(y)), columns.astype(int)] = values
    return y

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


@reference("_contrib_fft")
def fft(x):
    y = np.fft.fft(x.astype(np.float64), axis=-1)
    return np.stack([y.real, y.imag], axis=-1).reshape(*x.shape[:-1], -1)


@reference("_contrib_ifft")
def ifft(x):
    pairs = x.astype(np.float64).reshape(*x.shape[:-1], -1, 2)
    y = pairs[..., 0] + 1j * pairs[..., 1]
    return np.fft.ifft(y, axis=-1).real * y.shape[-1]


@reference("_contrib_count_sketch")
def count_sketch(x, h, s, out_dim):
    out = np.zeros((*x.shape[:-1], out_dim), x.dtype)
    for i in range(x.shape[-1]):
        out[..., int(h.ravel()[i])] += s.ravel()[i] * x[..., i]
    return out


@reference("_histogram")
def histogram(x, bin_cnt, range):
    counts, edges = np.histogram(x.astype(np.float64), bin_cnt, range)
    return counts, edges


@reference("_zeros_without_dtype")
def zeros_without_dtype(shape):
    return np.zeros(shape, np.float32)


@reference("cast_storage")
def cast_storage(x, stype):
    return x.copy()


@reference("_contrib_quantize_asym")
def quantize_asym(x, min_calib_range=None, max_calib_range=None):
    low = min(x.min(), 0) if min_calib_range is None else min_calib_range
    high = max(x.max(), 0) if max_calib_range is None else max_calib_range
    scale = 255 / (np.float64(high) - np.float64(low))
    shift = -low * scale
    q = np.clip(np.round(x.astype(np.float64) * scale + shift), 0, 255).astype(np.uint8)
    return q, np.float32([scale]), np.float32([shift])


def smoothed(p, small=1e-4):
    zeros = p == 0
    taken = small * zeros.sum() / max((~zeros).sum(), 1)
    if not p.any() or taken >= 1:
        return None
    return np.where(zeros, small, p - taken)


@reference("_contrib_calibrate_entropy")
def calibrate_entropy(hist, edges, num_quantized_bins=255):
    hist, middle = hist.astype(np.float64), len(hist) // 2
    best = (np.inf, len(edges) - 1)
    for half in range(num_quantized_bins // 2, middle + 1):
        inside = hist[middle - half : middle + half + 1]
        p = inside.copy()
        p[0] += hist[: middle - half].sum()
        p[-1] += hist[middle + half + 1 :].sum()
        width, q = len(inside) // num_quantized_bins, np.zeros_like(p)
        for level in range(num_quantized_bins):
            last = level == num_quantized_bins - 1
            part = slice(level * width, len(p) if last else (level + 1) * width)
            filled = np.count_nonzero(inside[part])
            q[part] = inside[part].sum() / filled if filled else 0
        q[p == 0] = 0
        p, q = smoothed(p), smoothed(q)
        if p is None or q is None:
            continue
        p, q = p / p.sum(), q / q.sum()
        lost = (p[p > 0] * np.log(p[p > 0] / q[p > 0])).sum()
        if lost < best[0]:
            best = (lost, middle + half + 1)
    return np.float32([edges[best[1]]]), np.float32([best[0]])


@reference("_contrib_hawkesll")
def hawkesll(lda, alpha, beta, state, lags, marks, valid_length, max_time):
    values, states = np.zeros(len(lda)), np.zeros(lda.shape)
    for n in range(len(lda)):
        times, end = np.cumsum(lags[n].astype(np.float64)), max_time[n]
        events = [(times[i], marks[n, i]) for i in range(int(valid_length[n]))]

        def excitement(time, k, events=events, n=n):
            past = [np.exp(-beta[k] * (time - t)) for t, mark in events if mark == k and t < time]
            return state[n, k] * np.exp(-beta[k] * time) + sum(past)

        for time, k in events:
            values[n] += np.log(lda[n, k] + alpha[k] * beta[k] * excitement(time, k))
        for k in range(lda.shape[1]):
            whole = state[n, k] + sum(mark == k for _, mark in events)
            states[n, k] = excitement(end, k)
            values[n] -= lda[n, k] * end + alpha[k] * (whole - states[n, k])
    return values, states


@reference("IdentityAttachKLSparseReg")
def sparse_penalty(x, average, **_):
    return x.copy()


@reference("_polygamma")
def polygamma(x, n=0):
    """The sum of its poles, what is far of them by an integral."""
    k, end = np.arange(2000.0), x + 2000
    near = x[..., None] + k
    if n == 0:
        series = (1 / (k + 1) - 1 / near).sum(-1)
        far = np.log(end / 2000) - (1 / end + 1 / 2000) / 2 - (end**-2 - 2000.0**-2) / 12
        return series - np.euler_gamma + far
    far = end**-n / n + end ** (-n - 1) / 2 + (n + 1) * end ** (-n - 2) / 12
    return (-1) ** (n + 1) * math.factorial(n) * ((near ** (-n - 1)).sum(-1) + far)

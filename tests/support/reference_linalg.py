"""NumPy oracles of linear algebra; see `reference.py`."""

import numpy as np
from reference import reference


def turned(a, yes=True):
    return np.swapaxes(a, -1, -2) if yes else a


@reference("_linalg_gemm2")
def gemm2(a, b, transpose_a=False, transpose_b=False, alpha=1.0, axis=-2):
    a, b = (np.moveaxis(x, axis, -2) for x in (a, b))
    return np.moveaxis(alpha * (turned(a, transpose_a) @ turned(b, transpose_b)), -2, axis)


@reference("_linalg_gemm")
def gemm(a, b, c, beta=1.0, **options):
    return gemm2(a, b, **options) + beta * c


@reference("_linalg_syrk")
def syrk(a, transpose=False, alpha=1.0):
    a = turned(a, transpose)
    return alpha * (a @ turned(a))


@reference("khatri_rao")
def khatri_rao(*matrices, num_args=None):
    out = matrices[0]
    for m in matrices[1:]:
        out = (out[:, None] * m[None]).reshape(-1, m.shape[1])
    return out


def triangle(a, lower):
    return np.tril(a) if lower else np.triu(a)


@reference("_linalg_trmm")
def trmm(a, b, transpose=False, rightside=False, lower=True, alpha=1.0):
    a = turned(triangle(a, lower), transpose)
    return alpha * (b @ a if rightside else a @ b)


@reference("_linalg_trsm")
def trsm(a, b, transpose=False, rightside=False, lower=True, alpha=1.0):
    a = np.linalg.inv(turned(triangle(a, lower), transpose))
    return alpha * (b @ a if rightside else a @ b)


@reference("_linalg_potrf")
def potrf(a, lower=True):
    return turned(np.linalg.cholesky((a + turned(a)) / 2), not lower)


@reference("_linalg_potri")
def potri(a, lower=True):
    a = triangle(a, lower)
    return np.linalg.inv(a @ turned(a) if lower else turned(a) @ a)


@reference("_linalg_inverse")
def inverse(a):
    return np.linalg.inv(a)


def batch(x, a):
    return x.reshape(a.shape[:-2] or (1,))


@reference("_linalg_det")
def det(a):
    return batch(np.linalg.det(a), a)


@reference("_linalg_slogdet")
def slogdet(a):
    sign, logarithm = np.linalg.slogdet(a)
    return batch(sign, a), batch(logarithm, a)


@reference("_linalg_gelqf")
def gelqf(a):
    """Of the signs that the factors may have, those of Householder's method."""
    q, r = np.linalg.qr(turned(a))
    return turned(q), turned(r)


@reference("_linalg_syevd")
def syevd(a):
    values, vectors = np.linalg.eigh((a + turned(a)) / 2)
    u = turned(vectors)
    greatest = np.take_along_axis(u, np.abs(u).argmax(-1)[..., None], -1)
    return u * np.sign(greatest), values


@reference("_linalg_sumlogdiag")
def sumlogdiag(a):
    return batch(np.log(np.diagonal(a, axis1=-2, axis2=-1)).sum(-1), a)


@reference("_linalg_extractdiag")
def extractdiag(a, offset=0):
    return np.diagonal(a, offset, -2, -1)


@reference("_linalg_makediag")
def makediag(a, offset=0):
    n = a.shape[-1] + abs(offset)
    out = np.zeros((*a.shape[:-1], n, n))
    i = np.arange(a.shape[-1])
    out[..., i + max(-offset, 0), i + max(offset, 0)] = a
    return out


def triangle_places(m, offset, lower):
    i, j = np.tril_indices(m)
    if not (lower if offset == 0 else offset < 0):
        i, j = j, i
    return i + max(-offset, 0), j + max(offset, 0)


@reference("_linalg_extracttrian")
def extracttrian(a, offset=0, lower=True):
    return a[(..., *triangle_places(a.shape[-1] - abs(offset), offset, lower))]


@reference("_linalg_maketrian")
def maketrian(a, offset=0, lower=True):
    m = int((np.sqrt(8 * a.shape[-1] + 1) - 1) / 2)
    n = m + abs(offset)
    out = np.zeros((*a.shape[:-1], n, n))
    out[(..., *triangle_places(m, offset, lower))] = a
    return out

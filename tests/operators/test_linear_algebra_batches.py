"""Factorisations of singular matrices, of large ones and of batches that are split."""

import numpy as np
import pytest

import rsnet as mx
from rsnet import autograd, nd


def symmetric(kind, n, dtype):
    full = np.random.default_rng(n).normal(size=(n, n))
    rank = {"half the rank": n // 2, "rank 1": 1}.get(kind, n)
    matrix = full[:, :rank] @ full[:, :rank].T
    if kind == "indefinite":
        matrix = full + full.T
    if kind == "two halves":
        matrix = np.kron([[0, 1], [1, 0]], (full + full.T)[: n // 2, : n // 2])
    return (matrix * (1e30 if kind == "large numbers" else 1)).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [2, 12, 40])
@pytest.mark.parametrize(
    "kind",
    ["definite", "indefinite", "half the rank", "rank 1", "two halves", "large numbers"],
)
def test_eigenvalues_of_symmetric_matrices(kind, n, dtype):
    a = symmetric(kind, n, dtype)
    u, values = (x.asnumpy().astype("float64") for x in nd.linalg.syevd(nd.array(a, dtype=dtype)))
    a = a.astype("float64")
    size = np.abs(a).max()
    near = 20 * n * np.finfo(dtype).eps
    np.testing.assert_allclose(values / size, np.linalg.eigvalsh(a / size), atol=near)
    np.testing.assert_allclose(u @ u.T, np.eye(n), atol=near)
    np.testing.assert_allclose((u.T * values) @ u / size, a / size, atol=near)


@pytest.mark.parametrize("lead", [(), (3,)])
@pytest.mark.parametrize("n", [1, 5, 60])
def test_the_gradient_of_eigenvectors_is_its_formula(n, lead):
    rng = np.random.default_rng(n)
    a = rng.normal(size=(*lead, n, n))
    a = a + np.swapaxes(a, -1, -2)
    du, dl = rng.normal(size=a.shape), rng.normal(size=a.shape[:-1])
    x = nd.array(a, dtype="float64")
    x.attach_grad()
    with mx.autograd.record():
        u, values = nd.linalg.syevd(x)
        y = (u * nd.array(du, dtype="float64")).sum()
        y = y + (values * nd.array(dl, dtype="float64")).sum()
    y.backward()
    u, values = u.asnumpy(), values.asnumpy()
    gap = values[..., None, :] - values[..., :, None]
    inverse = np.divide(1, gap, out=np.zeros_like(gap), where=gap != 0)
    slope = inverse * (u @ np.swapaxes(du, -1, -2))
    middle = (slope + np.swapaxes(slope, -1, -2)) / 2 + dl[..., None] * np.eye(n)
    want = np.swapaxes(u, -1, -2) @ middle @ u
    np.testing.assert_allclose(x.grad.asnumpy(), want, rtol=1e-9, atol=1e-9 * np.abs(want).max())


COUNT = 6000  # of matrices of two rows: several parts


def test_batches_are_split_without_a_trace():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(COUNT, 2, 2))
    a = a @ np.swapaxes(a, 1, 2) + np.eye(2)
    x = nd.array(a, dtype="float64")
    near = {"rtol": 1e-9}
    np.testing.assert_allclose(nd.linalg.potrf(x).asnumpy(), np.linalg.cholesky(a), atol=1e-12)
    np.testing.assert_allclose(nd.linalg.inverse(x).asnumpy(), np.linalg.inv(a), **near)
    np.testing.assert_allclose(nd.linalg.det(x).asnumpy(), np.linalg.det(a), **near)
    np.testing.assert_allclose(nd.linalg.slogdet(x)[1].asnumpy(), np.log(np.linalg.det(a)),
                               rtol=1e-9, atol=1e-12)  # fmt: skip
    np.testing.assert_allclose(nd.linalg.syevd(x)[1].asnumpy(), np.linalg.eigvalsh(a), **near)
    q, low = nd.linalg.gelqf(x)
    np.testing.assert_allclose((nd.linalg.gemm2(low, q)).asnumpy(), a, rtol=1e-9, atol=1e-12)
    x.attach_grad()
    with mx.autograd.record():
        y = nd.linalg.det(x).sum()
    y.backward()
    want = np.linalg.det(a)[:, None, None] * np.swapaxes(np.linalg.inv(a), 1, 2)
    np.testing.assert_allclose(x.grad.asnumpy(), want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("bad", [(2500, 5999), (10, 20)])
def test_the_error_is_that_of_the_first_matrix(bad):
    a = np.tile(np.eye(2), (COUNT, 1, 1))
    a[bad[0], 1, 1] = 0  # pivot 1
    a[bad[1], 0, 0] = 0  # pivot 0
    with pytest.raises(mx.MXNetError, match="invalid matrix in argument 'A', whose pivot 1 is not"):
        nd.linalg.potrf(nd.array(a)).wait_to_read()
    with pytest.raises(mx.MXNetError, match="singular matrix"):
        nd.linalg.inverse(nd.array(a)).wait_to_read()


def test_eigenvalues_are_those_of_the_lower_triangle():
    a = np.random.RandomState(0).randn(5, 4, 4)
    _, values = nd.linalg.syevd(nd.array(a, dtype="float64"))
    np.testing.assert_allclose(values.asnumpy(), np.linalg.eigvalsh(a, "L"), rtol=1e-9)


def test_gradients_of_determinants_do_not_hide_nan():
    a = nd.array([[[1, np.nan], [2, 3]], [[1, 2], [2, 4]]])
    a.attach_grad()
    with autograd.record():
        y = nd.linalg.det(a)
    y.backward()
    assert np.isnan(a.grad.asnumpy()).all(axis=(1, 2)).tolist() == [True, False]

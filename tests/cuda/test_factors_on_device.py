"""Triangular systems and factorisations on a device: of many matrices, and of larger ones."""

import numpy as np
import pytest
from conftest import compare, first_of

import rsnet as mx
from rsnet import nd

DTYPES = ["float32", "float64"]
REQUESTS = ["write", "add"]
SHAPES = [(1, 1), (5, 5), (3, 2, 7, 7), (20, 20), (1, 0, 3, 3)]


def matrices(*shape, dtype="float32"):
    """With a diagonal that keeps rounding from growing."""
    x = np.random.RandomState(sum(shape)).uniform(-1, 1, shape) + shape[-1] * np.eye(*shape[-2:])
    return x.astype(dtype)


def definite(*shape, dtype="float32"):
    x = matrices(*shape)
    return (x @ np.swapaxes(x, -1, -2) / shape[-1]).astype(dtype)


def near(got, want):
    assert got.dtype == want.dtype
    scale = float(np.abs(want).max()) if want.size else 1.0
    tiny = {"float16": 2e-2, "float32": 2e-4, "float64": 1e-10}[str(want.dtype)]
    np.testing.assert_allclose(got, want, rtol=tiny, atol=tiny * scale)


@pytest.mark.parametrize("req", REQUESTS)
@pytest.mark.parametrize("dtype", first_of(*DTYPES, "float16"))
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("rightside", [True, False])
def test_triangular_matrices(rightside, lower, dtype, req):
    shape = (2, 3, 6) if rightside else (2, 6, 3)
    b = np.random.RandomState(1).uniform(-1, 1, shape).astype(dtype)
    for op in (nd.linalg.trmm, nd.linalg.trsm):
        for transpose in (True, False):
            options = {"rightside": rightside, "lower": lower, "transpose": transpose, "alpha": 2}

            def call(a, b, op=op, options=options):
                return op(a, b, **options)

            compare(call, matrices(2, 6, 6, dtype=dtype), b, req=req, near=near)


@pytest.mark.parametrize("dtype", first_of(*DTYPES))
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("lower", [True, False])
def test_cholesky_factors(lower, shape, dtype):
    for req in REQUESTS:
        a = definite(*shape, dtype=dtype)
        compare(lambda a: nd.linalg.potrf(a, lower=lower), a, req=req, near=near)
        compare(lambda a: nd.linalg.potri(a, lower=lower), matrices(*shape, dtype=dtype), near=near)


@pytest.mark.parametrize("dtype", first_of(*DTYPES))
@pytest.mark.parametrize("shape", SHAPES)
def test_inverses_and_determinants(shape, dtype):
    """With rows that have to change places."""
    a = matrices(*shape, dtype=dtype)[..., ::-1, :].copy() / shape[-1]
    for req in REQUESTS:
        compare(nd.linalg.inverse, a, req=req, near=near)
        compare(nd.linalg.det, a, req=req, near=near)
        compare(nd.linalg.slogdet, a, req=req, near=near)
        compare(lambda a: nd.linalg.slogdet(a)[1], a, req=req, near=near)


@pytest.mark.parametrize("dtype", first_of(*DTYPES))
@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (2, 3, 5, 8), (20, 20)])
def test_orthogonal_factors(shape, dtype):
    a = np.random.RandomState(5).uniform(-1, 1, shape).astype(dtype)
    for req in REQUESTS:
        compare(nd.linalg.gelqf, a, req=req, near=near)
    compare(nd.linalg.gelqf, np.zeros(shape, dtype), near=lambda a, b: None)


@pytest.mark.parametrize("dtype", first_of(*DTYPES))
@pytest.mark.parametrize("shape", [(1, 1), (2, 3, 5, 5), (24, 24)])
def test_eigenvalues(shape, dtype):
    steps = np.diag(np.arange(1.0, shape[-1] + 1))
    compare(nd.linalg.syevd, (definite(*shape) + steps).astype(dtype), near=near)


@pytest.mark.parametrize("req", REQUESTS)
@pytest.mark.parametrize("dtype", first_of(*DTYPES, "float16"))
def test_parts_of_matrices(dtype, req):
    a = definite(3, 6, 6, dtype=dtype)
    compare(nd.linalg.sumlogdiag, a, req=req)
    for offset in (-2, 0, 3):
        compare(lambda a, k=offset: nd.linalg.extractdiag(a, offset=k), a, req=req)
        compare(lambda a, k=offset: nd.linalg.makediag(a, offset=k), a[:, 0], req=req)
        for lower in (True, False):
            options = {"offset": offset, "lower": lower}
            compare(lambda a, o=options: nd.linalg.extracttrian(a, **o), a, req=req)
            compare(lambda a, o=options: nd.linalg.maketrian(a, **o), a[:, 0], req=req)


def test_a_matrix_without_a_factor_or_an_inverse_gives_nan(gpu):
    """Only the device knows of it, which goes on; the other matrices are not concerned."""
    singular = nd.array([[[1.0, 2.0], [2.0, 4.0]], [[4.0, 0.0], [0.0, 2.0]]], ctx=gpu)
    found = nd.linalg.inverse(singular).asnumpy()
    assert np.isnan(found[0]).all()
    np.testing.assert_allclose(found[1], [[0.25, 0], [0, 0.5]])
    found = nd.linalg.potrf(singular - nd.eye(2, ctx=gpu) * 3).asnumpy()
    assert np.isnan(found).all()
    found = nd.linalg.potrf(singular).asnumpy()
    assert np.isnan(found[0]).all() and np.allclose(found[1], [[2, 0], [0, 2**0.5]])
    sign, logarithm = nd.linalg.slogdet(singular)
    assert sign.asnumpy().tolist() == [0, 1] and logarithm.asnumpy()[0] == -np.inf
    singular.attach_grad()
    with mx.autograd.record():
        y = nd.linalg.det(singular)
    y.backward()
    np.testing.assert_allclose(singular.grad.asnumpy(), [np.zeros((2, 2)), [[2, 0], [0, 4]]])

"""Eigenvalues and eigenvectors: of general matrices, which have no order of their own, and of
matrices that are not finite.
"""

import numpy as np
import pytest

import rsnet as mx
from rsnet import nd

F = nd._internal


def with_values(values, rng):
    """A matrix that has these eigenvalues."""
    turn = rng.normal(size=(len(values), len(values)))
    return turn @ np.diag(values) @ np.linalg.inv(turn)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_vectors_are_stretched_by_their_values(n, dtype):
    rng = np.random.default_rng(n)
    values = rng.permutation(n) - 1.5
    a = np.stack([with_values(values * scale, rng) for scale in (1, 2)]).astype(dtype)
    w, v = F._npi_eig(nd.array(a, dtype=dtype))
    assert (w.shape, v.shape, w.dtype) == ((2, n), (2, n, n), np.dtype(dtype))
    w, v = w.asnumpy(), v.asnumpy()
    tolerance = 1e-3 if dtype == "float32" else 1e-8
    np.testing.assert_allclose(np.sort(w[0]), np.sort(values), atol=tolerance)
    np.testing.assert_allclose(np.sort(w[1]), np.sort(2 * values), atol=2 * tolerance)
    np.testing.assert_allclose(a @ v, v * w[:, None], atol=10 * tolerance)
    np.testing.assert_allclose(np.linalg.norm(v, axis=1), 1, rtol=1e-5)
    greatest = np.take_along_axis(v, np.abs(v).argmax(1)[:, None], 1)
    assert (greatest > 0).all()
    only = F._npi_eigvals(nd.array(a, dtype=dtype)).asnumpy()
    np.testing.assert_array_equal(only, w)


def test_an_eigenvalue_may_have_one_vector_only():
    w, v = F._npi_eig(nd.array([[1, 1], [0, 1]], dtype="float64"))
    assert w.asnumpy().tolist() == [1, 1]
    np.testing.assert_allclose(v.asnumpy(), [[1, 1], [0, 0]], atol=1e-12)


def test_what_has_no_real_eigenvalues_is_refused():
    for a, text in [
        ([[0, 1], [-1, 0]], "complex eigenvalues"),
        ([[0, 1, 0], [0, 0, 1], [1, 0, 0]], "complex eigenvalues"),
        ([[np.nan, 1], [1, 0]], "not finite"),
        ([[np.inf]], "not finite"),
    ]:
        for call in (F._npi_eigvals, lambda a: F._npi_eig(a)[1]):
            with pytest.raises(mx.MXNetError, match=text):
                call(nd.array(a)).asnumpy()
    with pytest.raises(mx.MXNetError, match="argument 'A' has shape"):
        F._npi_eigvals(nd.ones((2, 3)))
    with mx.np_shape(True):
        assert F._npi_eigvals(nd.array(np.zeros((3, 0, 0)))).shape == (3, 0)


@pytest.mark.parametrize("n", [3, 40])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_symmetric_matrices_that_are_not_finite_have_none(n, bad):
    good = np.random.default_rng(n).normal(size=(n, n)).astype("float32")
    good += good.T
    off, on = good.copy(), good.copy()
    off[2, 1] = off[1, 2] = bad
    np.fill_diagonal(on[::2, ::2], bad)
    a = nd.array(np.stack([good, off, on]))
    expected = np.linalg.eigvalsh(good)
    for values in (nd.linalg.syevd(a)[1], F._npi_eigh(a)[0], F._npi_eigvalsh(a)):
        values = values.asnumpy()
        np.testing.assert_allclose(values[0], expected, atol=1e-4)
        assert np.isnan(values[1:]).all()
    assert np.isnan(nd.linalg.syevd(a)[0][1:].asnumpy()).all()

"""Random matrices of known structure, for tests of linear algebra."""

from __future__ import annotations

from typing import Any

import numpy as np


def rand_coord_2d(x_low: int, x_high: int, y_low: int, y_high: int) -> tuple[Any, Any]:
    """Two integers, one of each half-open range."""
    return np.random.randint(x_low, x_high, dtype=np.int64), np.random.randint(
        y_low, y_high, dtype=np.int64
    )


def get_identity_mat(size: int) -> np.ndarray:
    """The identity matrix (size, size)."""
    return np.eye(size)


def get_identity_mat_batch(size: int) -> np.ndarray:
    """Two identity matrices, (2, size, size)."""
    return np.stack([np.eye(size)] * 2)


def new_orthonormal_matrix_2d(n: int) -> np.ndarray:
    """An orthonormal matrix (n, n)."""
    return np.linalg.qr(np.random.randn(n, n))[0]


def new_matrix_with_real_eigvals_2d(n: int) -> np.ndarray:
    """A matrix (n, n) similar to a diagonal one, so that its eigenvalues are real."""
    basis = np.random.randn(n, n) + n * np.eye(n)
    made: np.ndarray = basis @ np.diag(np.random.uniform(-1.0, 1.0, n)) @ np.linalg.inv(basis)
    return made


def new_sym_matrix_with_real_eigvals_2d(n: int) -> np.ndarray:
    """A symmetric matrix (n, n)."""
    basis = new_orthonormal_matrix_2d(n)
    made: np.ndarray = basis @ np.diag(np.random.uniform(-1.0, 1.0, n)) @ basis.T
    return made


def _batch(make: Any, shape: Any) -> np.ndarray:
    count = int(np.prod(shape[:-2], dtype=np.int64))
    made: np.ndarray = np.stack([make(shape[-1]) for _ in range(count)]).reshape(shape)
    return made


def new_matrix_with_real_eigvals_nd(shape: Any) -> np.ndarray:
    """Matrices as of `new_matrix_with_real_eigvals_2d` in the last two axes of `shape`."""
    return _batch(new_matrix_with_real_eigvals_2d, shape)


def new_sym_matrix_with_real_eigvals_nd(shape: Any) -> np.ndarray:
    """Matrices as of `new_sym_matrix_with_real_eigvals_2d` in the last two axes of `shape`."""
    return _batch(new_sym_matrix_with_real_eigvals_2d, shape)

"""Oracles of joins, products over labels, statistics, factorisations and the rest of the operators
of MXNet's NumPy interface: NumPy's own functions.
"""

import numpy as np
from reference import reference


@reference("_npi_einsum")
def einsum(*arrays, subscripts, optimize=0):
    return np.asarray(np.einsum(subscripts, *arrays))


@reference("_npi_tensordot")
def tensordot(a, b, a_axes_summed, b_axes_summed):
    return np.tensordot(a, b, (a_axes_summed, b_axes_summed))


@reference("_npi_tensordot_int_axes")
def tensordot_of_neighbours(a, b, axes):
    return np.tensordot(a, b, axes)


@reference("_npi_vstack")
def vstack(*arrays):
    return np.vstack(arrays)


@reference("_npi_hstack")
def hstack(*arrays, dim=1):
    return np.hstack(arrays)


@reference("_npi_dstack")
def dstack(*arrays, dim=1):
    return np.dstack(arrays)


@reference("_npi_column_stack")
def column_stack(*arrays):
    return np.column_stack([a.reshape(1) if a.ndim == 0 else a for a in arrays])


def _each(function):
    return lambda *arrays: tuple(function(a) for a in arrays)


for _rank in (1, 2, 3):
    reference(f"_np_atleast_{_rank}d")(_each(getattr(np, f"atleast_{_rank}d")))


def _cut(x, axis, indices, sections):
    return tuple(np.split(x, sections or list(indices[1:]), axis))


@reference("_npi_hsplit")
def hsplit(x, indices, axis=1, squeeze_axis=False, sections=0):
    return _cut(x, min(1, x.ndim - 1), indices, sections)


@reference("_npi_dsplit")
def dsplit(x, indices, axis=1, squeeze_axis=False, sections=0):
    return _cut(x, 2, indices, sections)


@reference("_npi_rot90")
def rot90(x, k=1, axes=(0, 1)):
    return np.rot90(x, k, axes)


@reference("_np_roll")
def roll(x, shift, axis=None):
    return np.roll(x, sum(shift) if axis is None else shift, axis)


@reference("_np_diagflat")
def diagflat(x, k=0):
    return np.diagflat(x, k)


@reference("_npi_pad")
def pad(x, pad_width, mode="constant", constant_value=0.0, reflect_type="even"):
    more = {"constant_values": constant_value} if mode == "constant" else {}
    return np.pad(x, pad_width, mode, **more)


@reference("_np_trace")
def trace(x, offset=0, axis1=0, axis2=1):
    return np.asarray(np.trace(x, offset, axis1, axis2, dtype=x.dtype))


def _spread(function, root):
    def oracle(x, axis=None, dtype=None, ddof=0, keepdims=False):
        out = np.asarray(function(x, axis=axis, ddof=ddof, keepdims=keepdims))
        return out.astype(dtype or x.dtype)

    return oracle


reference("_npi_var")(_spread(np.var, False))
reference("_npi_std")(_spread(np.std, True))


@reference("_npi_average")
def average(a, weights=None, axis=None, returned=False, weighted=True):
    one_axis = axis[0] if isinstance(axis, tuple) and len(axis) == 1 else axis
    out, scale = np.average(a, axis=one_axis, weights=weights, returned=True)
    if weights is None or weights.shape != a.shape:
        scale = np.ravel(scale)[0]
    return (np.asarray(out), np.asarray(scale)) if returned else np.asarray(out)


@reference("_npi_percentile")
def percentile(a, q=None, axis=None, interpolation="linear", keepdims=False, q_scalar=None):
    q = q if q_scalar is None else q_scalar
    return np.asarray(np.percentile(a, q, axis=axis, method=interpolation, keepdims=keepdims))


def _number(function, turned):
    return lambda x, scalar=1.0, is_int=True: function(scalar, x) if turned else function(x, scalar)


def _ldexp(a, b):
    return a * np.exp2(b)


for _name, _function in {"arctan2": np.arctan2, "copysign": np.copysign, "ldexp": _ldexp}.items():
    reference(f"_npi_{_name}")(_function)
    reference(f"_npi_{_name}_scalar")(_number(_function, False))
    reference(f"_npi_r{_name}_scalar")(_number(_function, True))
reference("_npi_lcm")(np.lcm)
reference("_npi_lcm_scalar")(lambda x, scalar=1, is_int=True: np.lcm(x, x.dtype.type(scalar)))


@reference("_npi_diff")
def diff(a, n=1, axis=-1):
    return np.diff(a, n, axis)


@reference("_npi_ediff1d")
def ediff1d(
    x,
    *edges,
    to_begin_arr_given=False,
    to_end_arr_given=False,
    to_begin_scalar=None,
    to_end_scalar=None,
):
    edges = list(edges)
    begin = edges.pop(0) if to_begin_arr_given else to_begin_scalar
    end = edges.pop(0) if to_end_arr_given else to_end_scalar
    parts = [np.ravel([] if part is None else part) for part in (begin, end)]
    return np.concatenate([parts[0], np.diff(x.ravel()), parts[1]]).astype(x.dtype)


@reference("_npi_polyval")
def polyval(p, x):
    return np.polyval(p, x)


def _window(function):
    return lambda M, dtype="float32": function(M).astype(dtype)


for _name in ("blackman", "hamming", "hanning"):
    reference(f"_npi_{_name}")(_window(getattr(np, _name)))


@reference("_npi_logspace")
def logspace(start, stop, num, endpoint=True, base=10.0, dtype="float32"):
    return np.logspace(start, stop, num, endpoint, base).astype(dtype)


@reference("_npi_indices")
def indices(dimensions, dtype="int32"):
    return np.indices(dimensions, dtype)


@reference("_npi_diag_indices_from")
def diag_indices_from(x):
    return np.array(np.diag_indices_from(x))


def _with_signs(v):
    """The sign of the greatest element of each row."""
    at = np.abs(v).argmax(-1)[..., None]
    return np.sign(np.take_along_axis(v, at, -1))


@reference("_npi_svd")
def svd(a):
    u, s, v = np.linalg.svd(a, full_matrices=False)
    signs = _with_signs(v)
    return u * signs.swapaxes(-1, -2), s, v * signs


@reference("_npi_eigh")
def eigh(a, UPLO="L"):
    values, vectors = np.linalg.eigh(a, UPLO)
    return values, vectors * _with_signs(vectors.swapaxes(-1, -2)).swapaxes(-1, -2)


@reference("_npi_eigvalsh")
def eigvalsh(a, UPLO="L"):
    return np.linalg.eigvalsh(a, UPLO)


@reference("_npi_solve")
def solve(a, b):
    return np.linalg.solve(a, b[..., None])[..., 0] if b.ndim < a.ndim else np.linalg.solve(a, b)


@reference("_npi_pinv")
def pinv(a, rcond, hermitian=False):
    return np.linalg.pinv(a, rcond)


@reference("_npi_pinv_scalar_rcond")
def pinv_of_a_number(a, rcond=1e-15, hermitian=False):
    return np.linalg.pinv(a, rcond)


@reference("_npi_tensorinv")
def tensorinv(a, ind=2):
    return np.linalg.tensorinv(a, ind)


@reference("_npi_tensorsolve")
def tensorsolve(a, b, a_axes=()):
    return np.linalg.tensorsolve(a, b, a_axes or None)


@reference("_npi_norm")
def norm(x, ord=2.0, axis=None, keepdims=False, flag=-1):
    if flag == -2:
        axis, ord = axis or tuple(range(x.ndim)), 2.0
    axis = tuple(range(x.ndim))[-2:] if axis is None else axis
    if flag == -2 or (flag == 1 and len(axis) == 2):
        return np.asarray(np.sqrt((x * x).sum(axis, keepdims=keepdims)))
    if flag == 2 and len(axis) == 2 and ord == 2:
        ord = "nuc"
    axis = axis[0] if len(axis) == 1 else axis
    return np.asarray(np.linalg.norm(x, ord, axis, keepdims)).astype(x.dtype)


def _span(start, stop, step):
    return slice(start, stop, step)


@reference("_npi_insert_scalar")
def insert_at(x, values=None, val=None, int_ind=None, axis=None):
    return np.insert(x, int_ind, val if values is None else values, axis)


@reference("_npi_insert_slice")
def insert_along(x, values=None, val=None, start=None, stop=None, step=None, axis=None):
    return np.insert(x, _span(start, stop, step), val if values is None else values, axis)


@reference("_npi_insert_tensor")
def insert_many(x, *others, val=None, axis=None):
    values, places = (val, *others) if val is not None else others
    return np.insert(x, places.astype("int64"), values, axis)


@reference("_npi_delete")
def delete(x, start=None, stop=None, step=None, int_ind=None, axis=None):
    return np.delete(x, _span(start, stop, step) if int_ind is None else int_ind, axis)


@reference("_npi_boolean_mask_assign_scalar")
def assign_number(data, mask, value, start_axis):
    out = data.copy()
    out[(slice(None),) * start_axis + (mask != 0,)] = value
    return out


@reference("_npi_boolean_mask_assign_tensor")
def assign_array(data, mask, value, start_axis):
    return assign_number(data, mask, value, start_axis)


@reference("_npi_share_memory")
def share_memory(a, b):
    return np.asarray(False)


@reference("_npx_constraint_check")
def constraint_check(x, msg=""):
    return np.all(x)

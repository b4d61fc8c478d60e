"""Oracles of the operators of MXNet's NumPy interface: NumPy's own functions."""

import numpy as np
from reference import reference

# Of two arrays.
ARRAYS = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "true_divide": np.true_divide,
    "mod": np.mod,
    "power": np.power,
    "hypot": np.hypot,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
}
TESTS = ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal")
# Of an array and a number, which stands on the left in those with an r.
NUMBERS = {name: ARRAYS[name] for name in ARRAYS if name != "hypot"}
TURNED = ("subtract", "true_divide", "mod", "power")


def _number(function, turned):
    def oracle(x, scalar=1.0, is_int=True):
        if (
            x.dtype.kind in "biu"
        ):  # a number of another kind makes float64, an integer int64 of bool
            x = x.astype("float64" if not is_int else "int64" if x.dtype == bool else x.dtype)
        scalar = x.dtype.type(scalar)
        return function(scalar, x) if turned else function(x, scalar)

    return oracle


for _name, _function in ARRAYS.items():
    reference(f"_npi_{_name}")(_function)
for _name, _function in NUMBERS.items():
    reference(f"_npi_{_name}_scalar")(_number(_function, False))
for _name in TURNED:
    reference(f"_npi_r{_name}_scalar")(_number(ARRAYS[_name], True))


def _reduced(function):
    def oracle(x, axis=None, keepdims=False, dtype=None, initial=None):
        return np.asarray(function(x, axis=axis, keepdims=keepdims), dtype=x.dtype)

    return oracle


for _name, _function in {
    "_np_sum": np.sum,
    "_np_prod": np.prod,
    "_npi_mean": np.mean,
    "_np_max": np.max,
    "_np_min": np.min,
}.items():
    reference(_name)(_reduced(_function))


def _found(function):
    def oracle(x, axis=None, keepdims=False):
        return np.asarray(function(x, axis=axis, keepdims=keepdims))

    return oracle


for _name, _function in {
    "_np_all": np.all,
    "_np_any": np.any,
    "_npi_argmax": np.argmax,
    "_npi_argmin": np.argmin,
}.items():
    reference(_name)(_found(_function))


@reference("_np_transpose")
def transpose(x, axes=None):
    return np.transpose(x, axes)


@reference("_np_moveaxis")
def moveaxis(x, source, destination):
    return np.moveaxis(x, source, destination)


@reference("_npi_flip")
def flip(x, axis=None):
    return np.flip(x, axis)


@reference("_np_reshape")
def reshape(x, newshape, order="C"):
    return np.reshape(x, newshape)


@reference("_npx_reshape")
def reshape_by_codes(x, newshape, reverse=False, order="C"):
    codes = list(newshape)
    if reverse:
        mirrored = reshape_by_codes(np.empty(x.shape[::-1]), turned(codes)).shape
        return x.reshape(mirrored[::-1])
    left, out = list(x.shape), []
    while codes:
        code = codes.pop(0)
        if code == -4:
            out, left = out + left, []
        elif code == -5:
            out.append(left.pop(0) * left.pop(0))
        elif code == -6:
            out += np.empty(left.pop(0)).reshape(codes[:2]).shape
            codes = codes[2:]
        else:
            extent = left.pop(0) if left else None
            out += [] if code == -3 else [extent if code == -2 else code]
    return x.reshape(out)


def turned(codes):
    """The codes from the last to the first, with the numbers of a split after it."""
    out = []
    while codes:
        size = 3 if codes[0] == -6 else 1
        out = [codes[0], *codes[1:size][::-1], *out]
        codes = codes[size:]
    return out


@reference("_np_copy")
def copy(x):
    return x.copy()


@reference("_np_squeeze")
def squeeze(x, axis=None):
    return np.squeeze(x, axis)


@reference("_npi_broadcast_to")
def broadcast_to(x, shape):
    return np.broadcast_to(x, shape)


@reference("_npi_concatenate")
def concatenate(*arrays, axis=None, dim=1):
    return np.concatenate(arrays, dim if axis is None else axis)


@reference("_npi_stack")
def stack(*arrays, axis=0):
    return np.stack(arrays, axis)


@reference("_np_diagonal")
def diagonal(x, offset=0, axis1=0, axis2=1):
    return np.diagonal(x, offset, axis1, axis2)


@reference("_np_diag")
def diag(x, k=0):
    return np.diag(x, k)


@reference("_npi_zeros")
def zeros(shape=(), dtype="float32"):
    return np.zeros(shape, dtype)


@reference("_npi_ones")
def ones(shape=(), dtype="float32"):
    return np.ones(shape, dtype)


@reference("_npi_identity")
def identity(shape, dtype="float32"):
    return np.identity(shape[0], dtype)


@reference("_npi_eye")
def eye(N, M=None, k=0, dtype="float32"):
    return np.eye(N, M, k, dtype)


@reference("_npi_arange")
def arange(start, stop=None, step=1.0, dtype="float32"):
    return np.arange(*((0, start) if stop is None else (start, stop)), step, dtype=dtype)


@reference("_npi_full_like")
def full_like(x, fill_value, dtype=None):
    return np.full_like(x, fill_value, dtype)


for _name in ("isnan", "isinf", "isfinite", "isposinf", "isneginf"):
    reference(f"_npi_{_name}")(getattr(np, _name))
for _name in ("and", "or", "xor"):
    _bits = getattr(np, f"bitwise_{_name}")
    reference(f"_npi_bitwise_{_name}")(_bits)
    reference(f"_npi_bitwise_{_name}_scalar")(
        lambda x, scalar=1.0, is_int=True, _bits=_bits: _bits(x, x.dtype.type(scalar))
    )
reference("_npi_bitwise_not")(np.bitwise_not)


@reference("_npi_around")
def around(x, decimals=0):
    return np.around(x, decimals)


@reference("_npi_nan_to_num")
def nan_to_num(x, copy=True, nan=0.0, posinf=None, neginf=None):
    return np.nan_to_num(x, nan=nan, posinf=posinf, neginf=neginf)


@reference("_npi_tril")
def tril(x, k=0):
    return np.tril(x, k)


@reference("_npi_cholesky")
def cholesky(x):
    return np.linalg.cholesky((x + x.swapaxes(-1, -2)) / 2)


@reference("_npi_where")
def where(condition, x, y):
    return np.where(condition, x, y)


@reference("_npi_where_lscalar")
def number_or_array(condition, x, scalar=0.0):
    return np.where(condition, np.asarray(scalar, x.dtype), x)


@reference("_npi_where_rscalar")
def array_or_number(condition, y, scalar=0.0):
    return np.where(condition, y, np.asarray(scalar, y.dtype))


@reference("_npi_where_scalar2")
def one_of_two_numbers(condition, x=0.0, y=0.0):
    return np.where(condition, np.float32(x), np.float32(y))


@reference("_np_dot")
def dot(a, b):
    return np.asarray(np.dot(a, b))


@reference("_npi_matmul")
def matmul(a, b):
    return np.asarray(np.matmul(a, b))

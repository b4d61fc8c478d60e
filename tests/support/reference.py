"""The NumPy oracle: what every operator computes, written as plainly as possible.

`REFERENCES[name](*inputs, **params)` gives an operator's visible outputs (an array or a tuple).
Float inputs arrive as float64, so that an oracle adds no error of its own; integers arrive as they
are. `GRADIENTS[name](out_grads, *inputs, **params)` stands in where the gradient is by definition
not the derivative (loss heads and the like); everything else is differentiated numerically. Shapes
and places are in `reference_shapes.py`, layers in `reference_nn.py`, heads in
`reference_losses.py`, sequences in `reference_sequences.py`.
"""

import math
from functools import reduce as fold

import numpy as np

REFERENCES = {}
GRADIENTS = {}


def reference(*names):
    """Decorator: registers the oracle of the operators `names`."""

    def deco(f):
        for name in names:
            REFERENCES[name] = f
        return f

    return deco


def gradient(*names):
    """Decorator: registers the gradient that the operators `names` define for themselves."""

    def deco(f):
        for name in names:
            GRADIENTS[name] = f
        return f

    return deco


# ---- element by element --------------------------------------------------------------------------


def away_from_zero(x):
    """Rounds halves away from zero."""
    return np.sign(x) * np.floor(np.abs(x) + 0.5)


def ties_down(x):
    """Rounds halves towards minus infinity."""
    return np.ceil(x - 0.5)


UNARY = {
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "tanh": np.tanh,
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "cbrt": np.cbrt,
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "square": np.square,
    "reciprocal": lambda x: 1 / x,
    "negative": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "round": away_from_zero,
    "rint": ties_down,
    "ceil": np.ceil,
    "floor": np.floor,
    "trunc": np.trunc,
    "fix": np.trunc,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "arcsin": np.arcsin,
    "arccos": np.arccos,
    "arctan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "arcsinh": np.arcsinh,
    "arccosh": np.arccosh,
    "arctanh": np.arctanh,
    "degrees": np.degrees,
    "radians": np.radians,
    "gamma": np.vectorize(math.gamma, otypes=["float64"]),
    "gammaln": np.vectorize(math.lgamma, otypes=["float64"]),
    "erf": np.vectorize(math.erf, otypes=["float64"]),
    "logical_not": lambda x: (x == 0).astype(x.dtype),
    "_copy": lambda x: x,
    "_CrossDeviceCopy": lambda x: x,
    "BlockGrad": lambda x: x,
    "make_loss": lambda x: x,
    "MakeLoss": lambda x, **_: x,
    "zeros_like": np.zeros_like,
    "ones_like": np.ones_like,
    "shape_array": lambda x: np.array(x.shape, dtype="int64"),
    "size_array": lambda x: np.array([x.size], dtype="int64"),
}
REFERENCES.update(UNARY)


@reference("erfinv")
def erfinv(x):
    """Newton's method on erf from a start at zero; fine for |x| < 0.95."""
    y = np.zeros_like(x)
    for _ in range(60):
        y = y - (REFERENCES["erf"](y) - x) * np.sqrt(np.pi) / 2 * np.exp(y * y)
    return y


@reference("hard_sigmoid")
def hard_sigmoid(x, alpha=0.2, beta=0.5):
    return np.clip(alpha * x + beta, 0, 1)


@reference("clip")
def clip(x, a_min, a_max):
    return np.clip(x, a_min, a_max).astype(x.dtype)


@reference("smooth_l1")
def smooth_l1(x, scalar=1.0):
    s2 = scalar**2
    return np.where(np.abs(x) < 1 / s2, 0.5 * s2 * x * x, np.abs(x) - 0.5 / s2)


@reference("Cast")
def cast(x, dtype):
    return x.astype(dtype)


@reference("amp_cast")
def float_cast(x, dtype):
    return x.astype(dtype) if np.issubdtype(x.dtype, np.floating) else x


def truncated_division(a, b):
    """Quotient; of integers, rounded towards zero."""
    if a.dtype.kind == "f":
        return a / b
    q = np.abs(a.astype("int64")) // np.abs(np.asarray(b, "int64"))
    return (np.sign(a.astype("int64")) * np.sign(np.asarray(b, "int64")) * q).astype(a.dtype)


def modulo(a, b):
    """Remainder with the divisor's sign; 0 for a divisor of 0."""
    with np.errstate(all="ignore"):
        return np.where(b == 0, np.zeros_like(a), np.mod(a, np.where(b == 0, 1, b)))


def logical(f):
    return lambda a, b: f(a, b).astype(a.dtype)


BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": truncated_division,
    "mod": modulo,
    "power": np.power,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "hypot": np.hypot,
    "equal": logical(np.equal),
    "not_equal": logical(np.not_equal),
    "greater": logical(np.greater),
    "greater_equal": logical(np.greater_equal),
    "lesser": logical(np.less),
    "lesser_equal": logical(np.less_equal),
    "logical_and": logical(np.logical_and),
    "logical_or": logical(np.logical_or),
    "logical_xor": logical(np.logical_xor),
}
COMPARISONS = [k for k in BINARY if k.startswith(("equal", "not", "great", "less", "logical"))]

for key, f in BINARY.items():
    REFERENCES[f"broadcast_{key}"] = f
    own = f"elemwise_{key}" if key in ("add", "sub", "mul", "div") else f"_{key}"
    REFERENCES[own] = f
REFERENCES["_grad_add"] = np.add
REFERENCES["_identity_with_attr_like_rhs"] = lambda a, b: a


def with_scalar(f, reverse=False):
    """`f` with a scalar that is first cast to the array's dtype."""

    def scalar_form(x, scalar=1.0, is_int=True):
        s = np.asarray(scalar).astype(x.dtype)
        return (f(s, x) if reverse else f(x, s)).astype(x.dtype)

    return scalar_form


for key, f in BINARY.items():
    name = {"add": "plus", "sub": "minus"}.get(key, key)
    REFERENCES[f"_{name}_scalar"] = with_scalar(f)
for name, key in (("minus", "sub"), ("div", "div"), ("mod", "mod"), ("power", "power")):
    REFERENCES[f"_r{name}_scalar"] = with_scalar(BINARY[key], reverse=True)


@reference("add_n")
def add_n(*args, num_args=None):
    return fold(np.add, args)


@reference("where")
def where(condition, x, y):
    if condition.ndim == 1 and x.ndim > 1:
        condition = condition.reshape(-1, *[1] * (x.ndim - 1))
    return np.where(condition != 0, x, y)


# ---- reductions ----------------------------------------------------------------------------------


def reduced_axes(x, axis, exclude):
    """The axes to reduce; None and () mean all."""
    axes = tuple(range(x.ndim)) if axis in (None, ()) else np.atleast_1d(axis)
    axes = tuple(int(a) % x.ndim for a in axes)
    if exclude and axis not in (None, ()):
        axes = tuple(a for a in range(x.ndim) if a not in axes)
    return axes


def kept(y):
    """A reduction over all axes has the shape (1,)."""
    return np.reshape(y, (1,)) if np.ndim(y) == 0 else y


def reduction(f):
    def reduce(x, axis=None, keepdims=False, exclude=False):
        y = kept(f(x, axis=reduced_axes(x, axis, exclude), keepdims=keepdims))
        return np.trunc(y).astype(x.dtype) if x.dtype.kind != "f" else y

    return reduce


for name, f in {
    "sum": np.sum,
    "mean": np.mean,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
    "nansum": np.nansum,
    "nanprod": np.nanprod,
}.items():
    REFERENCES[name] = reduction(f)


@reference("norm")
def norm(x, ord=2, axis=None, out_dtype=None, keepdims=False):
    axes = reduced_axes(x, axis, False)
    if ord == 1:
        return kept(np.abs(x).sum(axes, keepdims=keepdims))
    return kept(np.sqrt((x * x).sum(axes, keepdims=keepdims)))


@reference("moments")
def moments(x, axes=None, keepdims=False):
    axes = reduced_axes(x, axes, False)
    return kept(x.mean(axes, keepdims=keepdims)), kept(x.var(axes, keepdims=keepdims))


def arg_reduction(f):
    def reduce(x, axis=None, keepdims=False):
        y = f(x, axis=axis)
        if keepdims:
            y = y.reshape([1] * x.ndim) if axis is None else np.expand_dims(y, axis)
        return kept(y).astype("float32")

    return reduce


REFERENCES["argmax"] = arg_reduction(np.argmax)
REFERENCES["argmin"] = arg_reduction(np.argmin)
REFERENCES["argmax_channel"] = lambda x: np.argmax(x, axis=1).astype(x.dtype)


@reference("pick")
def pick(x, index, axis=-1, keepdims=False, mode="clip"):
    i = index.astype("int64")
    n = x.shape[axis]
    i = i % n if mode == "wrap" else np.clip(i, 0, n - 1)
    i = np.expand_dims(i, axis) if i.ndim < x.ndim else i
    y = np.take_along_axis(x, i, axis)
    return y if keepdims else np.squeeze(y, axis)


@reference("sort")
def sort(x, axis=-1, is_ascend=True):
    y = np.sort(x, axis)
    return y if is_ascend else np.flip(y, axis)


@reference("_sort_as")
def sort_as(values, x, axis=-1, is_ascend=True):
    order = np.argsort(x, axis)
    return np.take_along_axis(values, order if is_ascend else np.flip(order, axis), axis)


@reference("argsort")
def argsort(x, axis=-1, is_ascend=True, dtype="float32"):
    return np.argsort(x if is_ascend else -x, axis, kind="stable").astype(dtype)


@reference("topk")
def topk(x, axis=-1, k=1, ret_typ="indices", is_ascend=False, dtype="float32"):
    order = np.argsort(x if is_ascend else -x, axis, kind="stable")
    chosen = np.take(order, range(k if k > 0 else x.shape[axis]), axis)
    values = np.take_along_axis(x, chosen, axis)
    if ret_typ == "mask":
        mask = np.zeros_like(x)
        np.put_along_axis(mask, chosen, 1, axis)
        return mask
    indices = chosen.astype(dtype)
    return {"value": values, "indices": indices, "both": (values, indices)}[ret_typ]


# ---- creation ------------------------------------------------------------------------------------

REFERENCES["_zeros"] = lambda shape, dtype="float32", ctx=None: np.zeros(shape, dtype)
REFERENCES["_ones"] = lambda shape, dtype="float32", ctx=None: np.ones(shape, dtype)
REFERENCES["_full"] = lambda shape, value, dtype="float32", ctx=None: np.full(shape, value, dtype)
REFERENCES["_eye"] = lambda N, M=0, k=0, dtype="float32", ctx=None: np.eye(N, M or N, k, dtype)
REFERENCES["_linspace"] = lambda start, stop, num, dtype="float32", **_: np.linspace(
    start, stop, num, dtype=dtype
)


@reference("_linspace")
def linspace(start, stop, num, endpoint=True, dtype="float32", ctx=None):
    return np.linspace(start, stop, num, endpoint=endpoint).astype(dtype)


@reference("_arange")
def arange(start, stop=None, step=1.0, repeat=1, infer_range=False, dtype="float32", ctx=None):
    start, stop = (0, start) if stop is None else (start, stop)
    return np.repeat(np.arange(start, stop, step), repeat).astype(dtype)


@reference("_contrib_arange_like")
def arange_like(x, start=0.0, step=1.0, repeat=1, axis=None, ctx=None):
    n = x.size if axis is None else x.shape[axis]
    y = np.repeat(start + step * np.arange(-(-n // repeat)), repeat)[:n]
    return y.reshape(x.shape) if axis is None else y


# ---- products ------------------------------------------------------------------------------------


@reference("dot")
def dot(a, b, transpose_a=False, transpose_b=False, forward_stype=None):
    a = np.moveaxis(a, 0, -1) if transpose_a and a.ndim > 1 else a
    b = np.moveaxis(b, -1, 0) if transpose_b and b.ndim > 1 else b
    return kept(np.tensordot(a, b, 1))


@reference("batch_dot")
def batch_dot(a, b, transpose_a=False, transpose_b=False, forward_stype=None):
    a = np.swapaxes(a, -1, -2) if transpose_a else a
    b = np.swapaxes(b, -1, -2) if transpose_b else b
    return a @ b


REFERENCES["_contrib_quadratic"] = lambda x, a=0.0, b=0.0, c=0.0: a * x * x + b * x + c
REFERENCES["_contrib_div_sqrt_dim"] = lambda x: x / np.sqrt(x.shape[-1])
REFERENCES["_contrib_gradientmultiplier"] = lambda x, **_: x
GRADIENTS["_contrib_gradientmultiplier"] = lambda heads, x, scalar=1.0, **_: (scalar * heads[0],)

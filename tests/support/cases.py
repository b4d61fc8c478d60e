"""The table that drives the operator tests: for every operator, inputs and parameters to try.

A new element-wise operator needs one row in `UNARY_DOMAINS` (or nothing, if [-1, 1] suits it) and
its formula in `reference.py`; its tests are then written.
"""

import os
import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from reference import BINARY, COMPARISONS, UNARY

FLOATS = ("float32", "float64", "float16")
INTS = ("int32", "int64", "int8", "uint8")
ALL = FLOATS + INTS
SEED = int(os.environ.get("CASES_SEED", "0"))


@dataclass(frozen=True)
class In:
    """One input: its shape and how its values are drawn.

    Kinds: `real` is uniform in [low, high); `index` whole numbers in [low, high); `distinct`
    equally
    spaced values in random order, so that no two tie; `away` is real but at least 0.1 from whole
    and half numbers, where functions have kinks; `rising` equally spaced values in order.
    """

    shape: tuple
    low: float = -1.0
    high: float = 1.0
    kind: str = "real"
    dtype: str | None = None

    def draw(self, rng, dtype):
        dtype = np.dtype(self.dtype or dtype)
        size = int(np.prod(self.shape))
        if self.kind == "index" or (dtype.kind in "iu" and self.kind != "distinct"):
            low, high = (self.low, self.high) if self.kind == "index" else whole(self, dtype)
            return rng.randint(int(low), max(int(high), int(low) + 1), self.shape).astype(dtype)
        if self.kind == "distinct":
            values = rng.permutation(size).reshape(self.shape)
            if dtype.kind in "iu":
                return values.astype(dtype)
            return (self.low + (self.high - self.low) * (values + 0.5) / max(size, 1)).astype(dtype)
        if self.kind == "rising":
            return np.linspace(self.low, self.high, size).reshape(self.shape).astype(dtype)
        values = rng.uniform(self.low, self.high, self.shape)
        if self.kind == "away":
            near = np.round(values * 2) / 2
            offset = np.where(values >= near, 0.1, -0.1)
            values = np.where(np.abs(values - near) < 0.1, near + offset, values)
        return values.astype(dtype)


def whole(spec, dtype):
    """A range of small whole numbers for a real input tried with an integer dtype."""
    if spec.low > 0:
        return 1, 8
    return (0, 8) if dtype.kind == "u" else (-7, 8)


@dataclass(frozen=True)
class Case:
    """One way to call an operator.

    Attributes
    ----------
    grad : str
        `numeric`: compared with differences of the reference; `own`: with `GRADIENTS`; `zero`:
        all zero; `none`: not differentiable.
    wrt : tuple of int
        Inputs whose gradient is checked; all float inputs of kinds other than `index` by default.
    mutates : tuple of int
        Inputs that the operator changes; the reference returns them after the outputs.
    """

    op: str
    inputs: tuple = ()
    params: dict = field(default_factory=dict)
    dtypes: tuple = FLOATS
    grad: str = "numeric"
    wrt: tuple | None = None
    mutates: tuple = ()
    id: str = ""

    def arrays(self, dtype):
        """The input arrays, the same in every run of one `CASES_SEED`."""
        rng = np.random.RandomState((zlib.crc32(self.id.encode()) + SEED) % 2**32)
        return [i.draw(rng, dtype) for i in self.inputs]

    def differentiated(self):
        """Positions of the inputs whose gradient is checked."""
        if self.wrt is not None:
            return self.wrt
        return tuple(i for i, x in enumerate(self.inputs) if x.kind != "index" and not x.dtype)


CASES: dict[str, list[Case]] = {}


def case(op: str, *inputs: Any, **options: Any) -> None:
    """Adds a case. Inputs are `In` or shapes; options that `Case` does not know are parameters."""
    fields = {k: options.pop(k) for k in ("dtypes", "grad", "wrt", "mutates") if k in options}
    specs = tuple(i if isinstance(i, In) else In(tuple(i)) for i in inputs)
    known = CASES.setdefault(op, [])
    known.append(Case(op, specs, options, id=f"{op}-{len(known)}", **fields))


SHAPES = [(2, 3), (1,), (1, 1), (2, 3, 4, 5), (0,), (2, 0, 3), (129,)]
FEW_SHAPES = [(3, 4), (1,), (0, 2)]

# Where a function is defined and smooth; [-1, 1] else.
UNARY_DOMAINS = {
    "log": (0.3, 3), "log2": (0.3, 3), "log10": (0.3, 3), "log1p": (-0.6, 2), "sqrt": (0.3, 3),
    "rsqrt": (0.3, 3), "cbrt": (0.3, 3), "rcbrt": (0.3, 3), "reciprocal": (0.5, 3),
    "arcsin": (-0.8, 0.8), "arccos": (-0.8, 0.8), "arccosh": (1.3, 4), "arctanh": (-0.8, 0.8),
    "gamma": (0.5, 4), "gammaln": (0.5, 4), "exp": (-3, 3), "tanh": (-4, 4), "sigmoid": (-5, 5),
}  # fmt: skip
KINKED = ("relu", "abs", "sign", "round", "rint", "ceil", "floor", "trunc", "fix", "logical_not")
FLAT = ("sign", "round", "rint", "ceil", "floor", "trunc", "fix", "logical_not", "zeros_like",
        "ones_like")  # fmt: skip
WITH_INTS = ("square", "abs", "sign", "negative", "_copy", "zeros_like", "ones_like", "relu",
             "BlockGrad")  # fmt: skip

for name in [*UNARY, "hard_sigmoid", "erfinv"]:
    if name in ("shape_array", "size_array"):
        case(name, (2, 3), grad="none", dtypes=("float32", "int32"))
        continue
    low, high = UNARY_DOMAINS.get(name, (-0.9, 0.9) if name == "erfinv" else (-2.4, 2.4))
    if name in ("gamma", "gammaln", "erfinv", "tan"):
        low, high = {"tan": (-1, 1)}.get(name, (low, high))
    how = (
        "zero"
        if name in FLAT
        else "own"
        if name in ("BlockGrad", "make_loss", "MakeLoss")
        else "numeric"
    )
    for shape in SHAPES if name in ("relu", "exp", "square", "sigmoid") else FEW_SHAPES:
        kind = "away" if name in KINKED or name == "hard_sigmoid" else "real"
        case(
            name, In(shape, low, high, kind), grad=how, dtypes=ALL if name in WITH_INTS else FLOATS
        )
case("MakeLoss", (4, 3), grad_scale=2.0, normalization="batch", grad="own")
case("MakeLoss", (4, 3), grad_scale=2.0, normalization="valid", valid_thresh=0.2, grad="own")
case("hard_sigmoid", In((3, 4), -3, 3, "away"), alpha=0.5, beta=0.25)
case("clip", In((3, 4), -2, 2, "away"), a_min=-1.0, a_max=1.0, dtypes=ALL[:-1])
case("clip", In((0,)), a_min=0.0, a_max=1.0)
case("smooth_l1", In((3, 4), -2, 2, "away"), scalar=1.0)
case("smooth_l1", In((3, 4), -2, 2, "away"), scalar=2.0)
for target in ("float64", "int32", "uint8", "bool"):
    case("Cast", In((3, 4), 0.3, 5.6), dtype=target, grad="none", dtypes=ALL)
case("Cast", (3, 4), dtype="float64")
case("amp_cast", In((3, 4), 0.3, 5.6), dtype="float16", grad="none", dtypes=ALL)
case("amp_cast", (3, 4), dtype="float64")
case("amp_cast", In((3, 4), 0.3, 5.6), dtype="int32", grad="none", dtypes=("float32",))

PAIRS = [((2, 3), (2, 3)), ((2, 3), (1, 3)), ((2, 1, 4), (1, 3, 1)), ((1,), (5,)), ((3, 4), (4,)),
         ((0, 3), (1, 3))]  # fmt: skip
for key in BINARY:
    flat = "zero" if key in COMPARISONS else "numeric"
    positive = key in ("power", "hypot", "div")
    span = (0.5, 2.0) if positive else (-2.4, 2.4)
    types = FLOATS if key in ("power", "hypot") else ALL
    for a, b in PAIRS:
        kinds = ("distinct", "away") if not positive else ("real", "real")
        left, right = In(a, *span, kinds[0]), In(b, *span, kinds[1])
        if key == "mod":
            left, right = In(a, 2.1, 2.9), In(b, 1.2, 1.9)
        if key in COMPARISONS:
            left, right = In(a, -2, 3, "index"), In(b, -2, 3, "index")
            signed = tuple(t for t in types if t != "uint8")
            case(f"broadcast_{key}", left, right, grad=flat, wrt=(0, 1), dtypes=signed)
        else:
            case(f"broadcast_{key}", left, right, grad=flat, dtypes=types)
    own = f"elemwise_{key}" if key in ("add", "sub", "mul", "div") else f"_{key}"
    for shape in FEW_SHAPES:
        pair = (In(shape, *span), In(shape, *span))
        if key == "mod":
            pair = (In(shape, 2.1, 2.9), In(shape, 1.2, 1.9))
        case(own, *pair, grad=flat, dtypes=FLOATS if key in COMPARISONS else types)
    scalar_op = {"add": "plus", "sub": "minus"}.get(key, key)
    for scalar in (2.0, 0.75):
        case(f"_{scalar_op}_scalar", In((3, 4), *span, "away"), scalar=scalar, grad=flat)
    case(
        f"_{scalar_op}_scalar",
        In((3, 4), *span),
        scalar=3.0,
        dtypes=("int32", "int64"),
        grad="none",
    )
    case(f"_{scalar_op}_scalar", In((0, 4), *span), scalar=2.0, grad=flat)
for name in ("minus", "div", "mod", "power"):
    case(f"_r{name}_scalar", In((3, 4), 0.6, 0.9), scalar=2.0)
    case(f"_r{name}_scalar", In((3, 4), 0.6, 0.9), scalar=2.0, dtypes=("int32",), grad="none")
case("_grad_add", (3, 4), (3, 4))
case("_identity_with_attr_like_rhs", (3, 4), (3, 4), wrt=(0,))
case("add_n", (3, 4), (3, 4), (3, 4), dtypes=ALL)
case("add_n", (2,))
case("add_n", *[(5,)] * 9)
case("where", In((3, 4), 0, 2, "index"), (3, 4), (3, 4))
case("where", In((3,), 0, 2, "index"), (3, 4), (3, 4))

AXES = [
    ((2, 3, 4), {}), ((2, 3, 4), {"axis": 1}), ((2, 3, 4), {"axis": (0, 2)}),
    ((2, 3, 4), {"axis": -1, "keepdims": True}), ((2, 3, 4), {"axis": 1, "exclude": True}),
    ((5,), {}), ((1,), {}), ((1, 1), {"axis": 0}), ((64, 65), {"axis": 0}), ((64, 65), {"axis": 1}),
]  # fmt: skip
for name in ("sum", "mean", "prod", "max", "min", "nansum", "nanprod"):
    for shape, params in AXES:
        kind = "distinct" if name in ("max", "min") else "real"
        near = (0.9, 1.1) if name in ("prod", "nanprod") else (-1, 1)
        ints = ("int32", "int64") if name in ("sum", "max", "min") and np.prod(shape) < 100 else ()
        types = FLOATS if np.prod(shape) < 100 else ("float32", "float64")
        case(name, In(shape, *near, kind), dtypes=types + ints, **params)
for name in ("sum", "mean"):
    case(name, (0, 3), axis=1, grad="none")
case("sum", (2, 0, 3), axis=1, grad="none")
case("mean", In((20, 3), 100, 101, "index"), axis=0, grad="none", dtypes=("uint8", "int8"))
for shape, params in [((3, 4), {}), ((3, 4), {"ord": 1, "axis": 1}), ((3, 4), {"axis": 0}),
                      ((3, 4, 2), {"axis": (0, 1), "keepdims": True})]:  # fmt: skip
    case("norm", In(shape, 0.3, 2), **params)
case("moments", (3, 4, 5), axes=(0, 2))
case("moments", (3, 4, 5), axes=(1,), keepdims=True)
for name in ("argmax", "argmin"):
    for shape, params in [
        ((3, 4), {"axis": 1}), ((3, 4), {}), ((3, 4), {"axis": 0, "keepdims": True}),
        ((1,), {"axis": 0}), ((2, 3, 4), {"axis": -1}),
    ]:  # fmt: skip
        case(name, In(shape, kind="distinct"), grad="zero", dtypes=ALL, **params)
case("argmax_channel", In((3, 4), kind="distinct"), grad="zero")
case("pick", (3, 4), In((3,), 0, 4, "index"))
case("pick", (3, 4), In((4,), 0, 3, "index"), axis=0, keepdims=True)
case("pick", (3, 4), In((3,), 0, 9, "index"), mode="wrap")
for params in ({}, {"axis": 0}, {"axis": 1, "is_ascend": False}):
    case("sort", In((3, 4), kind="distinct"), **params)
    case("_sort_as", (3, 4), In((3, 4), kind="distinct"), grad="none", **params)
    case(
        "argsort", In((3, 4), kind="distinct"), grad="zero", dtypes=("float32", "float64"), **params
    )
for ret in ("indices", "value", "mask", "both"):
    how = "numeric" if ret == "value" else "none"
    case("topk", In((3, 5), kind="distinct"), k=2, ret_typ=ret, axis=1, grad=how, dtypes=FLOATS[:2])

for shape, target in [((2, 3, 4), (4, -1)), ((2, 3, 4), (0, -1)), ((2, 3, 4), (-3, 4)),
                      ((2, 3, 4), (0, -3)), ((2, 3, 4), (-4, 1, 2, -2)),
                      ((2, 3, 4), (2, -4, -1, 3, -2)), ((1,), (1, 1))]:  # fmt: skip
    case("Reshape", shape, shape=target, dtypes=ALL)
case("Reshape", (10, 5, 4), shape=(-1, 0), reverse=True)
case("Flatten", (2, 3, 4), dtypes=ALL)
case("Flatten", (2,))
for axis in (0, 1, -1):
    case("expand_dims", (2, 3), axis=axis)
case("squeeze", (2, 1, 3, 1))
case("squeeze", (2, 1, 3, 1), axis=(1,))
case("squeeze", (1, 1))
case("transpose", (2, 3), dtypes=ALL)
case("transpose", (2, 3, 4), axes=(1, 2, 0))
case("transpose", (2, 3, 4, 5), axes=(0, 2, 3, 1))
case("transpose", (70, 65), dtypes=("float32",), grad="none")
case("transpose", (0, 3), grad="none")
case("SwapAxis", (2, 3, 4), dim1=0, dim2=2)
case("Concat", (2, 3), (2, 2), dim=1, dtypes=ALL)
case("Concat", (2, 3), (1, 3), (4, 3), dim=0)
case("Concat", (2, 3, 2), (2, 3, 5), dim=-1)
case("Concat", (2, 3), dim=1)
case("Concat", (0, 3), (2, 3), dim=0, grad="none")
case("_rnn_param_concat", (6,), (4,), dim=0)
case("stack", (2, 3), (2, 3), axis=1)
case("stack", (2,), (2,), (2,), axis=-1)
case("SliceChannel", (2, 6), num_outputs=3, dtypes=ALL)
case("SliceChannel", (4, 2, 3), num_outputs=2, axis=1, squeeze_axis=True)
case("SliceChannel", (4, 3), num_outputs=2, axis=0)
case("slice_axis", (4, 5), axis=1, begin=1, end=4, dtypes=ALL)
case("slice_axis", (4, 5), axis=0, begin=-3, end=None)
case("slice_axis", (4, 5), axis=-1, begin=0, end=-1)
case("slice", (4, 5), begin=(1, 0), end=(3, None))
case("slice", (4, 5), begin=(None, 4), end=(None, 0), step=(2, -2))
case("slice_like", (4, 5), (2, 3), wrt=(0,))
case("slice_like", (4, 5), (2, 9), axes=(0,), wrt=(0,))
case("_slice_assign", (4, 5), (2, 3), begin=(1, 1), end=(3, 4), grad="none")
case("_slice_assign_scalar", (4, 5), scalar=2.5, begin=(1, 0), end=(4, 5), step=(2, 2),
     grad="none")  # fmt: skip
case("tile", (2, 3), reps=(2, 2))
case("tile", (2, 3), reps=(2, 1, 2))
case("repeat", (2, 3), repeats=2)
case("repeat", (2, 3), repeats=3, axis=1)
case("reverse", (2, 3), axis=1)
case("diag", (4,), k=1)
case("diag", (3, 4))
case("depth_to_space", (2, 8, 2, 3), block_size=2)
case("space_to_depth", (2, 2, 4, 6), block_size=2)
case("Pad", (1, 2, 3, 3), mode="constant", pad_width=(0, 0, 0, 0, 1, 2, 0, 1), constant_value=0.5)
case("Pad", (1, 2, 3, 3), mode="edge", pad_width=(0, 0, 0, 0, 1, 2, 0, 1))
case("Pad", (1, 2, 4, 4), mode="reflect", pad_width=(0, 0, 0, 0, 1, 2, 3, 1))
case("Crop", (1, 2, 5, 6), num_args=1, h_w=(3, 4), offset=(1, 2))
case("Crop", (1, 2, 5, 6), (1, 1, 3, 4), num_args=2, center_crop=True, wrt=(0,))
case("broadcast_axis", (2, 1, 3, 1), axis=(1, 3), size=(4, 2))
case("broadcast_to", (2, 1, 3), shape=(0, 4, 3))
case("broadcast_like", (2, 1), (2, 3), wrt=(0,))
case("_sum_like", (2, 4, 3), (4, 1), wrt=(0,))
case("_sum_like", (2, 3), (2, 3), wrt=(0,))
case("reshape_like", (2, 3), (3, 2), wrt=(0,))
case("take", (5, 3), In((2, 2), 0, 5, "index"))
case("take", (3, 5), In((4,), -3, 9, "index", "float32"), axis=1, mode="clip")
case("take", (3, 5), In((4,), -3, 9, "index", "float32"), axis=1, mode="wrap")
case("batch_take", (3, 4), In((3,), 0, 4, "index", "int32"))
case(
    "one_hot",
    In((2, 3), 0, 5, "index", "float32"),
    depth=4,
    grad="none",
    dtypes=("float32",),
)
case("one_hot", In((3,), 0, 4, "index", "int32"), depth=4, on_value=2.0, off_value=-1.0,
     dtype="float64", grad="none", dtypes=("float32",))  # fmt: skip
case("gather_nd", (3, 4), In((2, 5), 0, 3, "index", "int32"))
EACH_ONCE = In((1, 4), 0, 4, "distinct", "int32")
case("scatter_nd", (4,), EACH_ONCE, shape=(5,), dtypes=ALL)
case("scatter_nd", (4, 3), EACH_ONCE, shape=(6, 3))
case("_backward_gather_nd", (5,), In((2, 5), 0, 3, "index", "int32"), shape=(3, 4), dtypes=ALL)
case("_backward_gather_nd", (4, 2), In((1, 4), 0, 2, "index", "int32"), shape=(3, 2))
case("ravel_multi_index", In((2, 3), 0, 3, "index"), shape=(4, 5), grad="none", dtypes=FLOATS[:2])
case("unravel_index", In((3,), 0, 20, "index"), shape=(4, 5), grad="none", dtypes=FLOATS[:2])

for name in ("_zeros", "_ones"):
    for dtype in ("float32", "float64", "int32", "uint8", "bool"):
        case(name, shape=(2, 3), dtype=dtype, grad="none", dtypes=("float32",))
case("_full", shape=(2, 3), value=2.5, grad="none", dtypes=("float32",))
case("_full", shape=(2,), value=7, dtype="int64", grad="none", dtypes=("float32",))
case("_eye", N=3, M=4, k=1, grad="none", dtypes=("float32",))
case("_eye", N=3, grad="none", dtypes=("float32",))
case("_linspace", start=1.0, stop=2.0, num=4, grad="none", dtypes=("float32",))
case("_linspace", start=5, stop=1, num=4, endpoint=False, grad="none", dtypes=("float32",))
case("_linspace", start=5, stop=9, num=1, dtype="int32", grad="none", dtypes=("float32",))
case("_arange", start=5, grad="none", dtypes=("float32",))
case("_arange", start=1.0, stop=4.0, step=0.5, repeat=2, grad="none", dtypes=("float32",))
case("_arange", start=0, stop=1, step=0.1, dtype="float16", grad="none", dtypes=("float32",))
case("_arange", start=7, stop=0, step=-2, dtype="int32", grad="none", dtypes=("float32",))
case("_contrib_arange_like", (2, 3), grad="none")
case("_contrib_arange_like", (2, 3), axis=1, start=2.0, step=0.5, grad="none")
case("_contrib_quadratic", (3, 4), a=2.0, b=3.0, c=1.0)
case("_contrib_div_sqrt_dim", (3, 4))
case("_contrib_gradientmultiplier", (3, 4), scalar=-2.0, grad="own")
case("_split_v2", (2, 6), indices=(0, 1, 4))
case("_split_v2", (2, 6), indices=(0,), sections=3)
case("_scatter_set_nd", (5,), (2,), In((1, 2), 1, 3, "index", "int32"), shape=(5,), grad="none",
     dtypes=())  # fmt: skip

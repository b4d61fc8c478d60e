"""Cases of the operators of MXNet's NumPy interface."""

from cases import ALL, FLOATS, INTS, In, case
from reference_numpy import ARRAYS, NUMBERS, TESTS, TURNED

WIDE = FLOATS[:2]
AWAY = {"mod": (1.2, 1.9), "power": (0.3, 2), "true_divide": (0.5, 2), "hypot": (0.5, 2)}
PAIRS = [((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((), (2,)), ((), ()), ((0, 2), (2,))]

for name in ARRAYS:
    low, high = AWAY.get(name, (-2, 2))
    grad = "zero" if name in TESTS else "numeric"
    dtypes = FLOATS if name in ("true_divide", "hypot", "power", "mod") else ALL
    for a, b in PAIRS:
        case(f"_npi_{name}", In(a, low + 2, high + 2), In(b, low, high), dtypes=dtypes, grad=grad)
    case(f"_npi_{name}", In((3, 4), 0, 3, "index"), In((3, 4), 1, 3, "index"), grad="none")
for name in [*NUMBERS, *(f"r{name}" for name in TURNED)]:
    low, high = AWAY.get(name.removeprefix("r"), (-2, 2))
    grad = "zero" if name in TESTS else "numeric"
    for shape in ((2, 3), ()):
        case(f"_npi_{name}_scalar", In(shape, low, high), scalar=2.2, grad=grad)
    case(f"_npi_{name}_scalar", In((7,), 1, 5, "index"), scalar=2, is_int=True, grad="none")

MASK = In((2, 3), 0, 2, "index", dtype="bool")
for name in ("add", "subtract", "multiply", "true_divide", "mod", "power"):
    low, high = AWAY.get(name, (-2, 2))
    how = "none" if name == "power" else "numeric"  # the slope of 0 to a power is NaN
    case(f"_npi_{name}", MASK, In((2, 3), 0.5, 2), dtypes=FLOATS, grad=how)
    case(f"_npi_{name}", In((2, 1), 0.3, 2), In((3,), 1, 5, "index", dtype="int32"))
    case(f"_npi_{name}", In((2, 3), 0.3, 2, dtype="float64"), In((3,), low + 2, high + 2))
    case(
        f"_npi_{name}",
        In((2, 3), 1, 5, "index", dtype="int32"),
        In((3,), 1, 3, "index"),
        dtypes=("int64", "int8", "uint8"),
        grad="none",
    )
    number = In((2, 3), 1, 5, "index")
    case(f"_npi_{name}_scalar", number, scalar=2.5, is_int=False, dtypes=INTS, grad="none")
case("_npi_add_scalar", MASK, scalar=2, dtypes=("float32",), grad="none")
case("_npi_multiply_scalar", MASK, scalar=2.5, is_int=False, dtypes=("float32",), grad="none")
case("_npi_rtrue_divide_scalar", In((2,), 1, 5, "index"), scalar=3, dtypes=INTS, grad="none")

for name in ("_np_sum", "_np_prod", "_npi_mean", "_np_max", "_np_min"):
    dtypes = FLOATS if name in ("_npi_mean", "_np_prod") else ALL
    kind = "distinct" if name in ("_np_max", "_np_min") else "real"
    for more in ({}, {"axis": 1}, {"axis": (0, -1), "keepdims": True}, {"keepdims": True}):
        case(name, In((2, 3, 2), 0.5, 2, kind), dtypes=dtypes, **more)
    case(name, In((3,), 0.5, 2, kind), axis=0, dtypes=WIDE)
case("_np_sum", (2, 3), axis=0, dtype="float64", dtypes=("float64",))
for name in ("_np_all", "_np_any"):
    for more in ({}, {"axis": 0}, {"axis": (0, 1), "keepdims": True}):
        case(name, In((4, 3), 0, 2, "index"), grad="none", dtypes=ALL, **more)
    case(name, In((0, 3), 0, 2, "index"), axis=0, grad="none", dtypes=WIDE)
for name in ("_npi_argmax", "_npi_argmin"):
    for more in ({}, {"axis": 1}, {"axis": -1, "keepdims": True}, {"keepdims": True}):
        case(name, In((3, 4), -1, 1, "distinct"), grad="zero", dtypes=ALL, **more)

case("_np_transpose", (2, 3, 4), dtypes=ALL)
case("_np_transpose", (2, 3, 4), axes=(1, -1, 0))
case("_np_moveaxis", (2, 3, 4), source=(0,), destination=(-1,), dtypes=ALL)
case("_np_moveaxis", (2, 3, 4), source=(0, 2), destination=(1, 0))
case("_npi_flip", (2, 3), axis=(0,), dtypes=ALL)
case("_npi_flip", (2, 3, 2), axis=(0, -1))
case("_npi_flip", (2, 3))
case("_np_reshape", (2, 3), newshape=(3, -1), dtypes=ALL)
case("_np_reshape", (1, 1), newshape=())
case("_np_reshape", (0, 3), newshape=(3, 0))
case("_npx_reshape", (2, 3, 4), newshape=(-2, -5), dtypes=ALL)
case("_npx_reshape", (2, 1, 6), newshape=(-2, -3, -6, 2, -1))
case("_npx_reshape", (2, 3, 4), newshape=(-4,))
case("_npx_reshape", (8, 3, 3, 4), newshape=(-6, 2, 4, -4))
case("_npx_reshape", (2, 3, 4), newshape=(-1, -2), reverse=True)
case("_npx_reshape", (4, 6), newshape=(-2, -6, -1, 2), reverse=True)
case("_np_copy", (2, 3), dtypes=ALL)
case("_np_squeeze", (1, 3, 1), dtypes=ALL)
case("_np_squeeze", (1, 3, 1), axis=(0,))
case("_np_squeeze", (1, 1))
case("_npi_broadcast_to", (3,), shape=(2, 3), dtypes=ALL)
case("_npi_broadcast_to", (2, 1), shape=(4, 2, 3))
case("_npi_broadcast_to", (), shape=(2,))
case("_npi_concatenate", (2, 3), (2, 1), dtypes=ALL)
case("_npi_concatenate", (2, 3), (1, 3), dim=0)
case("_npi_concatenate", (2, 3), (2, 2), axis=-1)
case("_npi_stack", (2, 3), (2, 3), axis=-1, dtypes=ALL)
case("_np_diagonal", (3, 4), dtypes=ALL)
case("_np_diagonal", (2, 3, 4), offset=1, axis1=2, axis2=0)
case("_np_diag", (3,), k=-1, dtypes=ALL)
case("_np_diag", (3, 4), k=1)

for shape in ((2, 3), (), (0, 2)):
    case("_npi_zeros", shape=shape, grad="none", dtypes=("float32",))
    case("_npi_ones", shape=shape, dtype="int64", grad="none", dtypes=("float32",))
case("_npi_identity", shape=(3, 3), grad="none", dtypes=("float32",))
case("_npi_eye", N=2, M=4, k=-1, grad="none", dtypes=("float32",))
case("_npi_eye", N=3, grad="none", dtypes=("float32",))
case("_npi_eye", N=3, M=0, grad="none", dtypes=("float32",))
case("_npi_arange", start=5, grad="none", dtypes=("float32",))
case("_npi_arange", start=1, stop=9, step=2.5, dtype="float64", grad="none", dtypes=("float32",))
case("_npi_full_like", (2, 3), fill_value=3, grad="zero", dtypes=ALL)
case("_npi_full_like", (2, 3), fill_value=2, dtype="int32", grad="none", dtypes=("float32",))

SPREAD = In((3, 4), -3, 3, "away")
for name in ("isnan", "isinf", "isfinite", "isposinf", "isneginf"):
    case(f"_npi_{name}", (2, 3), grad="zero", dtypes=ALL)
WHOLE = ("int32", "int64", "int8", "uint8")
for name in ("and", "or", "xor"):
    case(f"_npi_bitwise_{name}", (2, 3), (3,), grad="none", dtypes=WHOLE)
    case(f"_npi_bitwise_{name}_scalar", (2, 3), scalar=5, grad="none", dtypes=WHOLE)
case("_npi_bitwise_not", (2, 3), grad="none", dtypes=WHOLE)
case("_npi_around", SPREAD, grad="zero", dtypes=ALL)
case("_npi_around", In((3, 4), -30, 30), decimals=-1, grad="none", dtypes=WIDE)
case("_npi_around", In((3, 4), -3, 3), decimals=2, grad="none", dtypes=WIDE)
case("_npi_nan_to_num", (2, 3), dtypes=ALL)
case("_npi_tril", (3, 4), dtypes=ALL)
case("_npi_tril", (2, 3, 3), k=1)
case("_npi_tril", (4, 2), k=-2)

CHOICE = In((2, 3), 0, 2, "index")
case("_npi_where", CHOICE, (2, 3), (2, 3), dtypes=ALL)
case("_npi_where", In((3,), 0, 2, "index"), (2, 1), (), dtypes=FLOATS)
for name in ("_npi_where_lscalar", "_npi_where_rscalar"):
    case(name, CHOICE, (2, 3), scalar=2, dtypes=ALL)
    case(name, CHOICE, (3,), scalar=0.5)
case("_npi_where_scalar2", CHOICE, x=1.5, y=-1, grad="none", dtypes=WIDE)

for a, b in [((2, 3), (3, 4)), ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 1, 3), (3, 4))]:
    case("_np_dot", a, b)
    case("_npi_matmul", a, b)
case("_npi_matmul", (2, 1, 3), (2, 3, 2))
for a, b in [
    ((2, 1, 2, 3), (4, 3, 2)),
    ((3,), (2, 3, 2)),
    ((2, 2, 3), (1, 3, 2)),
    ((2, 0), (0, 2)),
]:
    case("_npi_matmul", a, b)
for a, b in [
    ((2, 3), (4, 3, 2)),
    ((3,), (2, 3, 2)),
    ((), (2, 3)),
    ((2,), ()),
    ((2, 2), (2, 2, 2, 2)),
]:
    case("_np_dot", a, b)

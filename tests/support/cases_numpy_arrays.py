"""Cases of joins, products over labels, statistics, factorisations and the rest of the operators of
MXNet's NumPy interface.
"""

from cases import ALL, FLOATS, INTS, In, case
from cases_linalg import Positive

WIDE = FLOATS[:2]
NUMBERS = (*FLOATS, "int32", "int64")

for subscripts, *shapes in [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,kj", (2, 3), (4, 3)),
    ("ii", (3, 3)),
    ("ii->i", (3, 3)),
    ("ij->ji", (2, 3)),
    ("ij->j", (2, 3)),
    ("i,j->ij", (2,), (3,)),
    ("bij,bjk->bik", (2, 2, 3), (2, 3, 2)),
    ("...ij,...jk->...ik", (2, 1, 2, 3), (4, 3, 2)),
    ("i...,i->...", (2, 3), (2,)),
    ("ij,jk,kl->il", (2, 3), (3, 2), (2, 2)),
    ("ij,ij,ij->", (2, 3), (2, 3), (2, 3)),
    ("iij,jk->ik", (2, 2, 3), (3, 2)),
    ("ab,cd->da", (2, 3), (2, 3)),
    ("i,i->i", (3,), (1,)),
    (",i->i", (), (3,)),
]:
    case("_npi_einsum", *shapes, subscripts=subscripts)
case("_npi_einsum", (2, 3), (3, 2), subscripts="ij,jk->ik", dtypes=INTS[:2], grad="none")
for a, b, a_axes, b_axes in [
    ((2, 3), (4, 3), (1,), (1,)),
    ((2, 3, 4), (4, 2, 2), (-1, 0), (0, 1)),
    ((2,), (3,), (), ()),
    ((2, 3), (2, 3), (0, 1), (0, 1)),
]:
    case("_npi_tensordot", a, b, a_axes_summed=a_axes, b_axes_summed=b_axes)
for a, b, axes in [((2, 3), (3, 4), 1), ((2,), (3,), 0), ((2, 3, 2), (3, 2), 2), ((), (2,), 0)]:
    case("_npi_tensordot_int_axes", a, b, axes=axes)

for shapes in [((3,), (3,)), ((2, 3), (3,)), ((), ()), ((1, 2), (0, 2))]:
    case("_npi_vstack", *shapes, dtypes=ALL)
for shapes in [((3,), (2,)), ((2, 3), (2, 1)), ((), (2,)), ((2, 1, 2), (2, 3, 2))]:
    case("_npi_hstack", *shapes, dtypes=ALL)
for shapes in [((3,), (3,)), ((2, 3), (2, 3)), ((), ()), ((2, 1, 2), (2, 1, 3))]:
    case("_npi_dstack", *shapes, dtypes=ALL)
for shapes in [((3,), (3,)), ((2, 3), (2,)), ((2, 1), (2, 2))]:
    case("_npi_column_stack", *shapes, dtypes=ALL)
for rank in (1, 2, 3):
    case(f"_np_atleast_{rank}d", (), (2,), dtypes=ALL)
    case(f"_np_atleast_{rank}d", (2, 3), (2, 1, 2))
case("_npi_hsplit", (2, 6), indices=(0, 1, 4), axis=1, dtypes=ALL)
case("_npi_hsplit", (6,), indices=(0, 2), axis=1)
case("_npi_hsplit", (6,), indices=(), sections=3)
case("_npi_dsplit", (1, 2, 4), indices=(0, 1), axis=2, dtypes=ALL)
case("_npi_dsplit", (1, 2, 4), indices=(), sections=2, axis=2)

for k in range(4):
    case("_npi_rot90", (2, 3), k=k, axes=(0, 1), dtypes=ALL)
case("_npi_rot90", (2, 3, 4), k=-1, axes=(2, 0))
case("_np_roll", (2, 3), shift=(2,), dtypes=ALL)
case("_np_roll", (2, 3), shift=(1, -4), axis=(0, 1))
case("_np_roll", (2, 3), shift=(1,), axis=(1,))
case("_np_diagflat", (2, 2), k=1, dtypes=ALL)
case("_np_diagflat", (3,), k=-2)
for mode in ("constant", "edge", "maximum", "minimum", "reflect", "symmetric"):
    case("_npi_pad", In((2, 3), -1, 1, "distinct"), pad_width=((1, 2), (0, 3)), mode=mode)
case("_npi_pad", (3,), pad_width=((4, 5),), mode="reflect", dtypes=ALL)
case("_npi_pad", (3,), pad_width=((7, 1),), mode="symmetric")
case("_npi_pad", (2, 2), pad_width=((1, 0), (0, 1)), constant_value=3, dtypes=ALL)
case("_np_trace", (3, 4), dtypes=NUMBERS)
case("_np_trace", (2, 3, 4), offset=-1, axis1=1, axis2=2)
case("_np_trace", (2, 3, 4), offset=1, axis1=2, axis2=0)

for name in ("_npi_var", "_npi_std"):
    for more in ({}, {"axis": 1}, {"axis": (0, -1), "keepdims": True}, {"axis": 0, "ddof": 1}):
        case(name, In((3, 4, 2), -2, 2), **more)
    case(name, In((3, 4), 0, 9, "index"), axis=1, dtypes=INTS[:2], grad="none")
case("_npi_var", In((3, 4)), dtype="float64", grad="none", dtypes=("float32",))
case("_npi_average", (3, 4), In((3, 4), 0.5, 2))
case("_npi_average", (3, 4), In((4,), 0.5, 2), axis=1, returned=True)
case("_npi_average", (3, 4), In((3, 4), 0.5, 2), axis=(0,), returned=True)
case("_npi_average", (3, 4), axis=(0,), weighted=False)
for how in ("linear", "lower", "higher", "midpoint", "nearest"):
    case("_npi_percentile", (3, 5), axis=1, interpolation=how, q_scalar=37, grad="none")
case("_npi_percentile", (3, 4), In((2,), 0, 100), grad="none", dtypes=WIDE)
case(
    "_npi_percentile",
    (3, 4, 2),
    In((2, 2), 0, 100),
    axis=(0, 2),
    keepdims=True,
    grad="none",
    dtypes=WIDE,
)

POSITIVE = In((2, 3), 0.3, 2)
for name in ("arctan2", "copysign", "ldexp"):
    case(f"_npi_{name}", POSITIVE, In((3,), -2, -0.5))
    case(f"_npi_{name}", In((2, 1), -2, -0.5), In((1, 3), 0.5, 2))
    case(f"_npi_{name}", In((), 0.5, 2), In((), -2, -1))
    for side in ("", "r"):
        case(f"_npi_{side}{name}_scalar", POSITIVE, scalar=-1.5, is_int=False)
case("_npi_lcm", In((2, 3), 0, 9, "index"), In((3,), 0, 9, "index"), dtypes=INTS, grad="none")
case("_npi_lcm_scalar", In((2, 3), 0, 9, "index"), scalar=6, dtypes=INTS, grad="none")
case("_npi_diff", (2, 4), dtypes=NUMBERS)
case("_npi_diff", (5, 2), n=3, axis=0)
case("_npi_diff", (2, 3), n=0)
case("_npi_diff", (2, 3), n=4, grad="none")
case("_npi_ediff1d", (2, 3), dtypes=NUMBERS)
case("_npi_ediff1d", (4,), (2,), (1,), to_begin_arr_given=True, to_end_arr_given=True)
case("_npi_ediff1d", (4,), (2,), to_begin_scalar=3, to_end_arr_given=True)
case("_npi_polyval", (3,), (2, 3), dtypes=NUMBERS)
case("_npi_polyval", (4,), ())

for name in ("blackman", "hamming", "hanning"):
    for size in (0, 1, 6):
        case(f"_npi_{name}", M=size, grad="none", dtypes=("float32",))
case("_npi_logspace", start=0, stop=2, num=5, grad="none", dtypes=("float32",))
case(
    "_npi_logspace",
    start=0,
    stop=3,
    num=3,
    endpoint=False,
    base=2,
    grad="none",
    dtypes=("float32",),
)
case("_npi_indices", dimensions=(2, 3), grad="none", dtypes=("float32",))
case("_npi_indices", dimensions=(2,), dtype="float64", grad="none", dtypes=("float32",))
case("_npi_diag_indices_from", (3, 3), grad="none", dtypes=ALL)

case("_npi_svd", (2, 3), dtypes=WIDE)
case("_npi_svd", (2, 3, 3), dtypes=WIDE)
case("_npi_svd", (4, 5), dtypes=WIDE)
for triangle in "LU":
    case("_npi_eigh", (2, 3, 3), UPLO=triangle, grad="none", dtypes=WIDE)
    case("_npi_eigvalsh", (4, 4), UPLO=triangle, grad="none", dtypes=WIDE)
case("_npi_solve", Positive((2, 3, 3)), (2, 3, 2), dtypes=WIDE)
case("_npi_solve", Positive((3, 3)), (3,), dtypes=WIDE)
case("_npi_pinv", (2, 4, 3), In((2,), 1e-3, 1e-2), grad="none", dtypes=WIDE)
case("_npi_pinv", (3, 4), In((), 1e-3, 1e-2), grad="none", dtypes=WIDE)
case("_npi_pinv_scalar_rcond", (3, 2), rcond=1e-3, grad="none", dtypes=WIDE)
case("_npi_tensorinv", Positive((3, 3)), ind=1, dtypes=WIDE)
case("_npi_tensorinv", (2, 3, 3, 2), dtypes=("float64",))
case("_npi_tensorsolve", Positive((3, 3)), (3,), dtypes=WIDE)
case("_npi_tensorsolve", (2, 6, 3), (6,), a_axes=(0, 2), dtypes=("float64",))

for order in (1, 2, 3, 0.5, -2, float("inf"), -float("inf")):
    case("_npi_norm", In((2, 3), 0.3, 2, "distinct"), axis=(1,), ord=order, dtypes=WIDE)
case("_npi_norm", In((5,), 0, 2, "index"), axis=(-1,), ord=0, grad="none")
for order in (1, -1, 2, -2, float("inf"), -float("inf")):
    for shape in ((2, 3), (4, 2)):
        case("_npi_norm", In(shape, -2, 2, "away"), ord=order, dtypes=WIDE)
for flag in (-2, 1, 2):
    case("_npi_norm", (2, 3), flag=flag, dtypes=WIDE)
    case("_npi_norm", (3, 2, 4), flag=flag, keepdims=True, dtypes=WIDE)
case("_npi_norm", (3, 2, 4), axis=(2, 0), ord=1, dtypes=WIDE)
case("_npi_norm", (3, 2, 4), axis=(2, 0), keepdims=True, flag=2, dtypes=WIDE)
case("_npi_norm", In((2, 3), 0, 9, "index"), axis=(1,), dtypes=INTS[:2], grad="none")

WITHOUT = {"grad": "none"}
case("_npi_insert_scalar", (2, 3), val=5, int_ind=1, axis=1, dtypes=ALL, **WITHOUT)
case("_npi_insert_scalar", (2, 3), (2,), int_ind=-1, axis=1, **WITHOUT)
case("_npi_insert_scalar", (2, 3), (2, 1), int_ind=3, axis=1, **WITHOUT)
case("_npi_insert_scalar", (2, 3), (1, 2), int_ind=0, axis=1, **WITHOUT)
case("_npi_insert_scalar", (2, 3), (2,), int_ind=1, **WITHOUT)
case("_npi_insert_scalar", (2, 0), (), int_ind=0, axis=1, **WITHOUT)
case("_npi_insert_slice", (2, 3), val=5, start=0, stop=3, step=2, axis=1, dtypes=ALL, **WITHOUT)
case("_npi_insert_slice", (2, 3), (2,), step=-2, axis=1, **WITHOUT)
case("_npi_insert_slice", (2, 3), (2, 1), start=1, axis=1, **WITHOUT)
case("_npi_insert_slice", (3,), (1,), start=5, **WITHOUT)
PLACES = In((3,), 0, 3, "index", dtype="int64")
case("_npi_insert_tensor", (2, 3), PLACES, val=5, axis=1, dtypes=ALL, **WITHOUT)
case("_npi_insert_tensor", (2, 3), (3,), PLACES, axis=1, **WITHOUT)
case("_npi_insert_tensor", (2, 3), (3,), PLACES, **WITHOUT)
case("_npi_insert_tensor", (2, 3), (2,), In((1,), 1, 2, "index", dtype="int64"), axis=1, **WITHOUT)
case("_npi_delete", (2, 3), int_ind=-1, axis=1, dtypes=ALL, **WITHOUT)
case("_npi_delete", (2, 3), int_ind=4, **WITHOUT)
case("_npi_delete", (2, 5), start=1, stop=5, step=2, axis=1, **WITHOUT)
case("_npi_delete", (5,), step=-2, **WITHOUT)
case("_npi_delete", (5, 2), start=-2, axis=0, **WITHOUT)

MASK = In((3,), 0, 2, "index")
case(
    "_npi_boolean_mask_assign_scalar", (3, 2), MASK, value=9, start_axis=0, grad="none", dtypes=ALL
)
case("_npi_boolean_mask_assign_scalar", (2, 3), MASK, value=9, start_axis=1, grad="none")
case("_npi_boolean_mask_assign_tensor", (3, 2), MASK, (2,), start_axis=0, grad="none", dtypes=ALL)
case("_npi_boolean_mask_assign_tensor", (2, 3), MASK, (1,), start_axis=1, grad="none")
case("_npi_share_memory", (2, 3), (3,), grad="none", dtypes=ALL)
case(
    "_npx_constraint_check",
    In((2, 3), 1, 2, "index", dtype="bool"),
    grad="none",
    dtypes=("float32",),
)

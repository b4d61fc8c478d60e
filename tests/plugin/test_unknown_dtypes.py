"""Inputs without a dtype: float32, or what the operator's inference demands, in any order."""

import ctypes
import itertools

import numpy as np
import pytest
from plugins import compiled_text

import rsnet as mx
from rsnet import nd, sym

pytestmark = pytest.mark.process  # the compiler is one

#: `d` is floating point, or anything; the indices `i` are integers; `w` and `v` are like `d`.
SOURCE = """
#include "oneflow/core/framework/framework.h"
namespace oneflow {
namespace {
DataType Of(user_op::InferContext* ctx, const char* arg) {
  return *ctx->Dtype4ArgNameAndIndex(arg, 0);
}
Maybe<void> LikeD(user_op::InferContext* ctx) {
  *ctx->Shape4ArgNameAndIndex("out", 0) = *ctx->Shape4ArgNameAndIndex("d", 0);
  *ctx->Dtype4ArgNameAndIndex("out", 0) = Of(ctx, "d");
  return Maybe<void>::Ok();
}
Maybe<void> Take(user_op::InferContext* ctx) {
  DataType d = Of(ctx, "d");
  CHECK_OR_RETURN(Of(ctx, "i") == DataType::kInt64) << "i: int64, got " << int(Of(ctx, "i"));
  CHECK_OR_RETURN(d == DataType::kFloat || d == DataType::kDouble) << "d: floating point";
  return LikeD(ctx);
}
Maybe<void> Weighted(user_op::InferContext* ctx) {
  CHECK_OR_RETURN(Of(ctx, "d") == Of(ctx, "w")) << "w: like d";
  return Take(ctx);
}
Maybe<void> Integers(user_op::InferContext* ctx) {
  DataType i = Of(ctx, "i");
  CHECK_OR_RETURN(i == DataType::kInt32 || i == DataType::kInt64) << "i: integers";
  return LikeD(ctx);
}
Maybe<void> Alike(user_op::InferContext* ctx) {
  CHECK_OR_RETURN(Of(ctx, "d") == Of(ctx, "i")) << "one dtype";
  return LikeD(ctx);
}
Maybe<void> Lists(user_op::InferContext* ctx) {
  for (int k = 0; k < ctx->inputs().size(); ++k) {
    const auto& arg = ctx->inputs()[k];
    DataType type = *ctx->Dtype4ArgNameAndIndex(arg.first, arg.second);
    CHECK_OR_RETURN((type == DataType::kInt64) == (arg.first == "i")) << "i: int64 alone";
  }
  return LikeD(ctx);
}
class Nothing final : public user_op::OpKernel {
  void Compute(user_op::KernelComputeContext*) const override {}
  bool AlwaysComputeWhenAllOutputsEmpty() const override { return false; }
};
}  // namespace
#define OPERATOR(NAME, INFER, INPUTS)                                          \\
  REGISTER_USER_OP(NAME).INPUTS.Output("out").SetTensorDescInferFn(INFER);     \\
  REGISTER_USER_KERNEL(NAME).SetCreateFn<Nothing>().SetIsMatchedHob(user_op::HobTrue());
OPERATOR("dt_take_di", Take, Input("d").Input("i"))
OPERATOR("dt_take_id", Take, Input("i").Input("d"))
OPERATOR("dt_weighted_diw", Weighted, Input("d").Input("i").Input("w"))
OPERATOR("dt_weighted_wid", Weighted, Input("w").Input("i").Input("d"))
OPERATOR("dt_weighted_idw", Weighted, Input("i").Input("d").Input("w"))
OPERATOR("dt_integers_di", Integers, Input("d").Input("i"))
OPERATOR("dt_integers_id", Integers, Input("i").Input("d"))
OPERATOR("dt_alike_di", Alike, Input("d").Input("i"))
OPERATOR("dt_lists", Lists, InputWithMinimum("i", 1).Input("d"))
}  // namespace oneflow
"""

SHAPES = {"d": (4, 3), "i": (4, 3), "w": (4, 3)}


@pytest.fixture(scope="module", autouse=True)
def library():
    return mx.load_library(compiled_text(SOURCE + COUNTED))


def made(name):
    """The operator's node on variables that are called like its inputs, which the name lists."""
    order = name.rpartition("_")[2]
    return getattr(sym, name)(*map(sym.var, order)), order


def dtypes(exe):
    return {k: np.dtype(a.dtype).name for k, a in exe.arg_dict.items()}


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        *itertools.product(["dt_take_di", "dt_take_id"], [{}, {"d": "float32"}, {"i": "int64"}],
                           [{"d": "float32", "i": "int64"}]),
        *itertools.product(["dt_take_di", "dt_take_id"], [{"d": "float64"}],
                           [{"d": "float64", "i": "int64"}]),
        *itertools.product(["dt_weighted_diw", "dt_weighted_wid", "dt_weighted_idw"],
                           [{}, {"w": "float32"}, {"i": "int64"}],
                           [{"d": "float32", "i": "int64", "w": "float32"}]),
        *itertools.product(["dt_weighted_diw", "dt_weighted_wid", "dt_weighted_idw"],
                           [{"d": "float64"}, {"w": "float64"}, {"i": "int64", "w": "float64"}],
                           [{"d": "float64", "i": "int64", "w": "float64"}]),
        *itertools.product(["dt_integers_di", "dt_integers_id"], [{}],
                           [{"d": "float32", "i": "int32"}]),
        *itertools.product(["dt_integers_di", "dt_integers_id"], [{"d": "int64"}],
                           [{"d": "int64", "i": "int64"}]),
        *itertools.product(["dt_integers_di", "dt_integers_id"], [{"d": "float16"}],
                           [{"d": "float16", "i": "int32"}]),
        ("dt_alike_di", {"d": "float64"}, {"d": "float64", "i": "float64"}),
        ("dt_alike_di", {"i": "int8"}, {"d": "int8", "i": "int8"}),
        ("dt_alike_di", {}, {"d": "float32", "i": "float32"}),
    ],
)  # fmt: skip
def test_an_input_without_a_dtype_is_float32_or_what_the_operator_demands(name, given, expected):
    y, order = made(name)
    shapes = {k: SHAPES[k] for k in order}
    exe = y.simple_bind(mx.cpu(), type_dict=given, **shapes, grad_req="null")
    assert dtypes(exe) == expected
    assert exe.outputs[0].dtype == np.dtype(expected["d"]) and exe.outputs[0].shape == (4, 3)
    exe.forward()[0].wait_to_read()
    if given:
        args, outs, _ = y.infer_type_partial(**given)
        found = dict(zip(order, args, strict=True))
        assert all(t is None or np.dtype(t) == expected[k] for k, t in found.items())
        assert outs[0] is None or np.dtype(outs[0]) == expected["d"]
    assert y.infer_shape(**shapes)[1] == [(4, 3)]
    declared = getattr(sym, name)(*(sym.var(k, dtype=given.get(k)) for k in order))
    assert declared.infer_shape(**shapes)[1] == [(4, 3)]


def test_tables_need_no_dtypes(capsys):
    for name in ("dt_take_di", "dt_take_id"):
        y, order = made(name)
        mx.viz.print_summary(y, shape={k: SHAPES[k] for k in order})
        assert name in capsys.readouterr().out


def test_the_arrays_of_one_argument_are_alike():
    i = [sym.var(f"i{k}") for k in range(20)]
    y = sym.dt_lists(*i, sym.var("d"))
    exe = y.simple_bind(mx.cpu(), **{f"i{k}": (2,) for k in range(20)}, d=(5,), grad_req="null")
    assert dtypes(exe) == {"d": "float32"} | {f"i{k}": "int64" for k in range(20)}


def test_a_dtype_that_follows_from_another_operator():
    d = sym.var("d")
    for y in (sym.dt_integers_di(d, sym.var("i")), sym.dt_integers_id(sym.var("i"), d)):
        both = y + (d + sym.var("b", dtype="float64"))
        exe = both.simple_bind(mx.cpu(), d=(4, 3), i=(4, 3), b=(4, 3), grad_req="null")
        assert exe.arg_dict["d"].dtype == np.float64 and exe.arg_dict["i"].dtype == np.int32
    y = sym.dt_take_id(sym.var("i"), sym.relu(sym.dt_take_di(d, sym.var("j"))))
    exe = y.simple_bind(mx.cpu(), d=(4, 3), i=(4, 3), j=(4, 3), grad_req="null")
    assert dtypes(exe) == {"d": "float32", "i": "int64", "j": "int64"}


def test_what_fits_no_dtype_says_why():
    with pytest.raises(mx.MXNetError, match="w: like d"):
        made("dt_weighted_diw")[0].simple_bind(
            mx.cpu(), type_dict={"d": "float64", "w": "float32"}, **SHAPES
        )
    with pytest.raises(mx.MXNetError, match="d: floating point"):
        made("dt_take_id")[0].simple_bind(
            mx.cpu(), type_dict={"d": "int64", "i": "int64"}, d=(4, 3), i=(4, 3)
        )
    with pytest.raises(mx.MXNetError, match="dt_take_di: .*i: int64"):
        nd.dt_take_di(nd.ones(3), nd.ones(3))


#: More of the source: `counts_asked()` tells how often infer was asked. The inputs of `dt_turns`
#: take turns.
COUNTED = """
#include <atomic>
static std::atomic<int64_t> asked{0};
extern "C" int64_t counts_asked() { return asked; }
namespace oneflow {
namespace {
using namespace user_op;
Maybe<void> LikeFirst(InferContext* ctx) {
  *ctx->OutputShape("y", 0) = ctx->InputShape("x", 0);
  *ctx->OutputDType("y", 0) = ctx->InputDType("x", 0);
  return Maybe<void>::Ok();
}
Maybe<void> Never(InferContext* ctx) {
  ++asked;
  CHECK_OR_RETURN(ctx->InputDType("x", 0) == DataType::kUInt8) << "never";
  return LikeFirst(ctx);
}
Maybe<void> Turns(InferContext* ctx) {
  for (int k = 0; k < ctx->input_size("x"); ++k) {
    CHECK_OR_RETURN(ctx->InputDType("x", k) == (k % 2 ? DataType::kInt64 : DataType::kFloat))
        << "in turns";
  }
  return LikeFirst(ctx);
}
}  // namespace
#undef OPERATOR
#define OPERATOR(NAME, INFER, INPUTS)                                     \\
  REGISTER_USER_OP(NAME).INPUTS.Output("y").SetTensorDescInferFn(INFER);  \\
  REGISTER_USER_KERNEL(NAME).SetCreateFn<Nothing>().SetIsMatchedHob(HobTrue());
OPERATOR("dt_never", Never, InputWithMinimum("x", 1))
OPERATOR("dt_turns", Turns, InputWithMinimum("x", 1))
OPERATOR("dt_any", LikeFirst, Input("x"))
#define DEMANDS(NAME, TYPE)                                                          \\
  OPERATOR(NAME, [](InferContext* ctx) -> Maybe<void> {                              \\
    CHECK_OR_RETURN(ctx->InputDType("x", 0) == DataType::TYPE) << "x: " #TYPE;       \\
    return LikeFirst(ctx);                                                           \\
  }, Input("x"))
DEMANDS("dt_int32", kInt32)
DEMANDS("dt_int64", kInt64)
}  // namespace oneflow
"""


@pytest.fixture(scope="module")
def counted():
    count = ctypes.CDLL(compiled_text(SOURCE + COUNTED)).counts_asked
    count.restype = ctypes.c_int64
    return count


def bound_dtypes(y, **given):
    shapes = dict.fromkeys(y.list_arguments(), (2,))
    return dtypes(y.simple_bind(mx.cpu(), type_dict=given, **shapes, grad_req="null"))


def test_what_is_refused_is_searched_for_once_a_bind(counted):
    for n in (20, 60):
        y = sym.dt_never(*(sym.var(f"v{k}") for k in range(n)))
        before = counted()
        with pytest.raises(mx.MXNetError, match="never"):
            bound_dtypes(y)
        assert 0 < counted() - before < 3000  # the bounds of one search, whatever the inputs


def test_inputs_of_one_argument_that_take_turns(counted):
    for n in (2, 8, 12, 51):
        y = sym.dt_turns(*(sym.var(f"v{k}") for k in range(n)))
        expected = {f"v{k}": "int64" if k % 2 else "float32" for k in range(n)}
        assert bound_dtypes(y) == expected


def test_a_shared_variable_gets_a_dtype_that_all_operators_take(counted):
    d, i = sym.var("d"), sym.var("i")
    take, wide, narrow = sym.dt_integers_id(i, d), sym.dt_int64(i), sym.dt_int32(i)
    for nodes, expected in [((take, wide), "int64"), ((take, narrow), "int32")]:
        for order in itertools.permutations(nodes):
            assert bound_dtypes(sym.Group(list(order))) == {"d": "float32", "i": expected}
    for between in (sym.identity, sym.dt_any, lambda x: sym.dt_any(sym.dt_any(x))):
        y = sym.dt_integers_id(between(i), d)
        assert bound_dtypes(y) == {"d": "float32", "i": "int32"}
        assert bound_dtypes(y, d="float64") == {"d": "float64", "i": "int32"}
        assert bound_dtypes(sym.dt_int64(between(i))) == {"i": "int64"}


def test_what_an_operator_demands_decides_for_its_neighbours(counted):
    """What may be anything waits for what has to be an integer, whatever comes first."""
    a, b, c = (sym.var(name) for name in "abc")
    wide = sym.dt_int64(c)
    pairs = [sym.dt_alike_di(a, b), sym.dt_alike_di(b, c)]
    for order in itertools.permutations([*pairs, wide]):
        assert bound_dtypes(sym.Group(list(order))) == dict.fromkeys("abc", "int64")
    turned = [sym.dt_alike_di(b, a), sym.dt_alike_di(sym.identity(c), b), wide]
    for order in itertools.permutations(turned):
        assert bound_dtypes(sym.Group(list(order))) == dict.fromkeys("abc", "int64")
    assert bound_dtypes(sym.Group(pairs)) == dict.fromkeys("abc", "float32")


def test_errors_name_the_dtypes_that_were_assumed(counted):
    i = sym.var("i")
    with pytest.raises(mx.MXNetError) as caught:
        bound_dtypes(sym.Group([sym.dt_int32(i), sym.dt_int64(i)]))
    text = str(caught.value)
    assert "dtypes of the inputs: x int32" in text
    assert "assumed dtypes: 'i' int32; give others by type_dict" in text
    with pytest.raises(mx.MXNetError) as caught:
        bound_dtypes(sym.dt_int64(i), i="int32")
    assert "x: kInt64" in str(caught.value) and "assumed" not in str(caught.value)

"""Operators as users of MXNet and OneFlow wrote them, beyond what the tutorials show."""

import shutil
import subprocess

import numpy as np
import pytest
from plugins import compiled, compiled_text
from processes import printed, run

import rsnet as mx
from rsnet import nd, sym
from rsnet.test_utils import check_numeric_gradient

pytestmark = pytest.mark.process  # the compiler is one


@pytest.fixture(scope="module")
def users():
    return mx.load_library(compiled("mxnet_users.cc"))


@pytest.mark.parametrize(
    ("dtype", "tol"), [("float64", 1e-12), ("float32", 1e-5), ("float16", 0.05)]
)
def test_a_property_with_expressions(users, dtype, tol):
    rs = np.random.RandomState(0)
    x, gamma, beta = rs.randn(2, 3, 4), rs.randn(3), rs.randn(3)
    data, g, b = (nd.array(a, dtype=dtype) for a in (x, gamma, beta))
    for a in (data, g, b):
        a.attach_grad()
    with mx.autograd.record():
        y = nd.user_affine(data, g, b, scale=0.25)
    dy = rs.randn(2, 3, 4)
    y.backward(nd.array(dy, dtype=dtype))
    by_channel = gamma[None, :, None]
    expected = [
        (y, x * by_channel + beta[None, :, None]),
        (data.grad, dy * by_channel / 4),
        (g.grad, (dy * x).sum((0, 2)) / 4),
        (b.grad, dy.sum((0, 2)) / 4),
    ]
    for got, wanted in expected:
        assert got.dtype == np.dtype(dtype)
        np.testing.assert_allclose(got.asnumpy(), wanted, rtol=tol, atol=tol)


def test_a_property_gets_more_by_nnvm(users):
    assert "user_affine" in users and "UserAffine" in users
    x = nd.ones((1, 2, 2))
    assert (nd.UserAffine(x, nd.ones((2,)), nd.ones((2,))).asnumpy() == 2).all()


@pytest.mark.parametrize("req", ["write", "add", "null"])
def test_types_that_have_to_be_known_are_assumed(users, req):
    """Rules that refuse unknown dtypes are asked again when more is known."""
    net = sym.user_affine(sym.var("x"), sym.var("g"), sym.var("b"), fix_gamma=True, name="a")
    exe = net.simple_bind(mx.cpu(), x=(2, 3, 4), grad_req=req)
    assert {np.dtype(a.dtype) for a in exe.arg_arrays} == {np.dtype("float32")}
    for a in exe.arg_arrays:
        a[:] = 1
    for _ in range(2):
        exe.forward(is_train=True)
        exe.backward(nd.ones((2, 3, 4)))
    times = {"write": 1, "add": 2, "null": 0}[req]
    if times:
        assert (exe.grad_dict["x"].asnumpy() == 0.5 * times).all()
        assert (exe.grad_dict["b"].asnumpy() == 4.0 * times).all()
        assert (exe.grad_dict["g"].asnumpy() == 0).all()
    dense = sym.user_dense(sym.relu(sym.var("x")), sym.var("w"))
    exe = dense.simple_bind(mx.cpu(), x=(2, 3), w=(4, 3))
    assert exe.outputs[0].dtype == np.float32
    given = dense.infer_type(x="float64")
    assert [np.dtype(t) for t in given[0]] == [np.dtype("float64")] * 2
    # A refusal that has nothing to do with what is unknown is an error at once.
    with pytest.raises(mx.MXNetError, match="user_affine 'a': .*of g"):
        net.infer_type(x="float32", g="float64")


def test_products_of_matrices(users):
    rs = np.random.RandomState(1)
    x, w = rs.randn(3, 5), rs.randn(4, 5)
    for dtype, tol in [("float64", 1e-12), ("float32", 1e-5), ("float16", 0.02)]:
        got = nd.user_dense(nd.array(x, dtype=dtype), nd.array(w, dtype=dtype))
        np.testing.assert_allclose(got.asnumpy(), np.tanh(x @ w.T), rtol=tol, atol=tol)
    net = sym.user_dense(sym.var("x"), sym.var("w"))
    check_numeric_gradient(net, {"x": x, "w": w}, dtype=np.float64)
    with mx.util.np_shape():
        assert nd.user_dense(nd.zeros((0, 5)), nd.zeros((4, 5))).shape == (0, 4)
        nothing = nd.user_dense(nd.zeros((2, 0)), nd.zeros((3, 0)))
        assert nothing.asnumpy().tolist() == [[0.0] * 3] * 2
    with pytest.raises(mx.MXNetError, match=r"user_dense: dot of the shapes \(2, 3\) and \(5, 4\)"):
        nd.user_dense(nd.zeros((2, 3)), nd.zeros((4, 5))).wait_to_read()


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "int32", "int64", "int8", "uint8"]
)
def test_functions_of_elements(users, dtype):
    x = nd.array([1, 2, 3], dtype=dtype)
    assert nd.user_cubed(x).asnumpy().tolist() == [1, 8, 27]
    if dtype.startswith("float"):
        x.attach_grad()
        with mx.autograd.record():
            y = nd.user_cubed(x)
        y.backward()
        assert x.grad.asnumpy().tolist() == [3, 12, 27]


def test_pieces_of_expressions(users):
    x = np.array([[1.0, -2.0, 0.5], [0.0, 3.0, -1.0]], np.float32)
    soft = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    soft[:, 1] -= 1
    expected = soft + np.abs(x).sum(0) - np.maximum(x, 0)
    expected[:, 0] += 2
    np.testing.assert_allclose(nd.user_pieces(nd.array(x)).asnumpy(), expected, rtol=1e-5)


def test_lines_of_a_log_are_lines(users):
    code = f"""
        import rsnet as mx
        mx.load_library({compiled("mxnet_users.cc")!r})
        mx.nd.user_pieces(mx.nd.ones((1, 2))).wait_to_read()
    """
    assert run(code).stderr == "info: one row\ninfo: of pieces\n"


NUMBERS = """
#include <rsnet/mxnet.h>
namespace mxnet { namespace op {
struct RealsParam : public dmlc::Parameter<RealsParam> {
  float f; double d; nnvm::Tuple<double> list;
  DMLC_DECLARE_PARAMETER(RealsParam) {
    DMLC_DECLARE_FIELD(f).set_default(0.25f);
    DMLC_DECLARE_FIELD(d).set_default(1e-310);
    DMLC_DECLARE_FIELD(list).set_default({0.5, 5e-324});
  }
};
void Reals(const nnvm::NodeAttrs& attrs, const OpContext&, const std::vector<TBlob>&,
           const std::vector<OpReqType>&, const std::vector<TBlob>& out) {
  const RealsParam& p = nnvm::get<RealsParam>(attrs.parsed);
  double* y = out[0].dptr<double>();
  y[0] = p.f; y[1] = p.d; y[2] = p.list[0]; y[3] = p.list[1];
}
NNVM_REGISTER_OP(us_reals).set_attr_parser(ParamParser<RealsParam>)
    .set_attr<nnvm::FInferShape>("FInferShape", ElemwiseShape<1, 1>)
    .set_attr<FCompute>("FCompute<cpu>", Reals);
} }
"""


def test_numbers_do_not_depend_on_the_locale(tmp_path):
    """Parameters are texts on their way: a locale with a decimal comma must not cut them."""
    path = compiled_text(NUMBERS, "reals.cc")
    locales = ["C"]
    if shutil.which("localedef"):
        make = ["localedef", "-i", "de_DE", "-f", "UTF-8", str(tmp_path / "de_DE.UTF-8")]
        if subprocess.run(make, capture_output=True).returncode == 0:
            locales.append("de_DE.UTF-8")
    for name in locales:
        code = f"""
            import locale, os
            locale.setlocale(locale.LC_ALL, {name!r})
            import rsnet as mx
            mx.load_library({path!r})
            x = mx.nd.zeros((4,), dtype="float64")
            print(mx.nd.us_reals(x).asnumpy().tolist())
            print(mx.nd.us_reals(x, f=1.5, d=-2.75, list=(1e-320, 7.125)).asnumpy().tolist())
        """
        assert printed(code, LOCPATH=str(tmp_path)).splitlines() == [
            "[0.25, 1e-310, 0.5, 5e-324]",
            "[1.5, -2.75, 1e-320, 7.125]",
        ]


COMPARISONS = """
#include <rsnet/mxnet.h>
enum class Side { left, right };
struct Opaque { bool operator==(const Opaque&) const { return false; } };
namespace mxnet { namespace op {
struct ComparedParam : public dmlc::Parameter<ComparedParam> {
  int which;
  DMLC_DECLARE_PARAMETER(ComparedParam) { DMLC_DECLARE_FIELD(which); }
};
void Compared(const nnvm::NodeAttrs& attrs, const OpContext&, const std::vector<TBlob>& in,
              const std::vector<OpReqType>&, const std::vector<TBlob>&) {
  const int which = nnvm::get<ComparedParam>(attrs.parsed).which;
  const char* none = nullptr;
  uint8_t byte = 65;
  int calls = 0;
  if (which == 0)
    CHECK_EQ(in.size(), 2) << "inputs";
  else
    CHECK_LT(++calls, which) << "after " << calls;
  if (which == 2) CHECK_NE(none, nullptr);
  if (which == 3) CHECK_EQ(in[0].shape_, TShape(1, 7));
  if (which == 4) CHECK_EQ(Opaque(), Opaque());
  if (which == 5) CHECK_EQ(Side::left, Side::right);
  if (which == 6) CHECK_GE(byte, 66);
  if (which == 7) CHECK_EQ(std::string("a"), "b");
  if (which == 8) CHECK_GT(0.5f, 0.75);
  if (which == 9) CHECK_LE(in.size(), 0U);
}
NNVM_REGISTER_OP(us_compared).set_attr_parser(ParamParser<ComparedParam>)
    .set_attr<nnvm::FInferShape>("FInferShape", ElemwiseShape<1, 1>)
    .set_attr<FCompute>("FCompute<cpu>", Compared);
} }
"""


def test_comparisons_show_both_values():
    mx.load_library(compiled_text(COMPARISONS, "compared.cc", cflags=["-Wall", "-Werror"]))
    for which, shown in enumerate([
        "in.size() == 2 (1 vs. 2) inputs", "++calls < which (1 vs. 1) after 1",
        "none != nullptr (0 vs. nullptr)", "((2,) vs. (7,))", "Opaque() == Opaque() (? vs. ?)",
        "(0 vs. 1)", "byte >= 66 (65 vs. 66)", "(a vs. b)", "(0.5 vs. 0.75)",
        "in.size() <= 0U (1 vs. 0)",
    ]):  # fmt: skip
        with pytest.raises(mx.MXNetError) as caught:
            nd.us_compared(nd.ones((2,)), which=which).wait_to_read()
        assert shown in str(caught.value), which


def test_sources_of_oneflows_users():
    names = mx.load_library(compiled("oneflow_users.cpp"))
    assert names == ["user_boxes", "user_spread", "user_rate"]
    boxes = np.arange(6000, dtype=np.float32).reshape(500, 3, 4)
    x, labels = nd.array(boxes), nd.array(np.arange(500), dtype="int32")
    x.attach_grad()
    with mx.autograd.record():
        area, index = nd.user_boxes(x, labels, threshold=10, anchors=(7,))
    area.backward()
    sums = boxes.sum(-1)
    assert (area.asnumpy() == np.where(sums > 10, sums, 0)).all()
    assert (index.asnumpy() == np.arange(500) + 7).all()
    assert (x.grad.asnumpy() == 1).all()
    moved = nd.user_boxes(x, labels, threshold=0, anchors=(0,), path="abcdef")[0]
    assert (moved.asnumpy() == sums + 3).all()
    net = sym.user_boxes(sym.var("x"), sym.var("l"), threshold=1.0, anchors=(1,))
    exe = net.simple_bind(mx.cpu(), x=(2, 3, 4), l=(2,), grad_req={"x": "write", "l": "null"})
    assert np.dtype(exe.arg_dict["l"].dtype) == np.int32
    with pytest.raises(mx.MXNetError, match="user_boxes: .*anchors"):
        nd.user_boxes(x, labels, threshold=1)
    shown = mx.sbp.signatures("user_boxes", x, labels, threshold=1.0, anchors=(1,))
    assert len(shown) == 3  # two axes, and all broadcast


@pytest.mark.parametrize(
    ("given", "kernel"),
    [({}, 1), ({"rate": 0.1}, 1), ({"rate": "0.1"}, 1), ({"rate": np.float32(0.1)}, 1),
     ({"rate": 0.1 + 1e-12}, 1), ({"rate": 0.11}, 2)],
)  # fmt: skip
def test_conditions_on_floats_are_in_single_precision(given, kernel):
    mx.load_library(compiled("oneflow_users.cpp"))
    assert nd.user_rate(nd.zeros(2), **given).asnumpy().tolist() == [kernel] * 2


def test_a_condition_on_a_float_that_no_kernel_fits():
    mx.load_library(compiled("oneflow_users.cpp"))
    with pytest.raises(mx.MXNetError, match=r"(?s)user_rate: .*attr\(rate\) == 0.1 \[false\]"):
        nd.user_rate(nd.zeros(2), rate=0.05).wait_to_read()

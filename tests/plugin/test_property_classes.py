"""What rsnet asks of property classes in C++, and what it says of them in errors and help."""

import os

import pytest
from plugins import compiled_text
from processes import printed

import rsnet as mx
from rsnet import nd, sym

pytestmark = pytest.mark.process

#: y = x (rows, columns) + w (columns); its parameter is smaller than single precision holds.
SOURCE = """
#include <rsnet/mxnet.h>
namespace mxnet { namespace op {
struct RowParam : public dmlc::Parameter<RowParam> {
  double least;
  DMLC_DECLARE_PARAMETER(RowParam) { DMLC_DECLARE_FIELD(least).set_default(1e-300); }
};
DMLC_REGISTER_PARAMETER(RowParam);
class RowOp : public Operator {
 public:
  void Forward(const OpContext&, const std::vector<TBlob>& in, const std::vector<OpReqType>&,
               const std::vector<TBlob>& out, const std::vector<TBlob>&) override {
    const real_t *x = in[0].dptr<real_t>(), *w = in[1].dptr<real_t>();
    const size_t columns = in[1].Size();
    for (size_t i = 0; i < in[0].Size(); ++i) out[0].dptr<real_t>()[i] = x[i] + w[i % columns];
  }
  void Backward(const OpContext&, const std::vector<TBlob>& out_grad, const std::vector<TBlob>&,
                const std::vector<TBlob>&, const std::vector<OpReqType>&,
                const std::vector<TBlob>& in_grad, const std::vector<TBlob>&) override {
    const size_t columns = in_grad[1].Size();
    real_t *dx = in_grad[0].dptr<real_t>(), *dw = in_grad[1].dptr<real_t>();
    for (size_t i = 0; i < columns; ++i) dw[i] = 0;
    for (size_t i = 0; i < out_grad[0].Size(); ++i) {
      dw[i % columns] += out_grad[0].dptr<real_t>()[i];
      dx[i] = out_grad[0].dptr<real_t>()[i];
    }
  }
};
class RowProp : public OperatorProperty {
 public:
  void Init(const std::vector<std::pair<std::string, std::string>>& kwargs) override {
    param_.Init(kwargs);
  }
  std::map<std::string, std::string> GetParams() const override { return param_.__DICT__(); }
  std::vector<std::string> ListArguments() const override { return {"data", "row"}; }
  bool InferShape(std::vector<TShape>* in, std::vector<TShape>* out,
                  std::vector<TShape>*) const override {
    if ((*in)[0].ndim() == 0) return false;
    SHAPE_ASSIGN_CHECK(*in, 1, mshadow::Shape1((*in)[0][1]));
    out->assign(1, (*in)[0]);
    return true;
  }
  std::string TypeString() const override { return "TYPE"; }
  std::vector<int> DeclareBackwardDependency(const std::vector<int>& out_grad,
                                             const std::vector<int>&,
                                             const std::vector<int>&) const override {
    return out_grad;
  }
  // The first pair is of an array that backward does not get.
  std::vector<std::pair<int, void*>> BackwardInplaceOption(
      const std::vector<int>& out_grad, const std::vector<int>& in_data, const std::vector<int>&,
      const std::vector<void*>& in_grad) const override {
    return {{in_data[0], in_grad[0]}, {out_grad[0], in_grad[0]}};
  }
  Operator* CreateOperator(Context) const override { return new RowOp; }

 private:
  RowParam param_;
};
MXNET_REGISTER_OP_PROPERTY(NAME, RowProp)
    .describe("Adds a row.")
    .add_argument("data", "NDArray-or-Symbol", "Two axes.")
    .add_arguments(RowParam::__FIELDS__());
} }
"""


def library(name, type_string):
    return compiled_text(SOURCE.replace("NAME", name).replace("TYPE", type_string))


@pytest.fixture(scope="module", autouse=True)
def add_row():
    return mx.load_library(library("add_row", "add_row"))


def test_the_default_dtype_is_float32():
    x, row = nd.array([[1, 2], [3, 4]]), nd.array([10, 20])
    assert nd.add_row(x, row).asnumpy().tolist() == [[11, 22], [13, 24]]
    assert sym.add_row(sym.var("x"), sym.var("row")).infer_type()[0] == [mx.base.mx_real_t] * 2
    with pytest.raises(mx.MXNetError, match=r"add_row.*data.*float64|float64.*data"):
        nd.add_row(x.astype("float64"), row.astype("float64"))


def test_in_place_pairs_of_what_backward_does_not_get_have_no_effect():
    x = nd.array([[1, 2], [3, 4], [5, 6]])
    exe = sym.add_row(sym.var("x"), sym.var("row")).simple_bind(mx.cpu(), x=x.shape)
    exe.forward(is_train=True, x=x, row=nd.array([10, 20]))
    exe.backward(x * 2)
    assert exe.grad_dict["x"].asnumpy().tolist() == [[2, 4], [6, 8], [10, 12]]
    assert exe.grad_dict["row"].asnumpy().tolist() == [18, 24]
    assert exe.arg_dict["x"].asnumpy().tolist() == x.asnumpy().tolist()


def test_shapes_that_contradict_name_the_array():
    with pytest.raises(
        mx.MXNetError, match=r"invalid shape \(3,\) of input 'row': expected \(2,\)"
    ):
        nd.add_row(nd.ones((2, 2)), nd.ones((3,)))


def test_help_shows_small_defaults():
    assert "default=1e-300" in nd.add_row.__doc__


def test_the_type_string_is_the_registered_name():
    with pytest.raises(
        mx.MXNetError, match=r"invalid TypeString\(\) 'other' .*'lost_row': expected the operator's"
    ):
        mx.load_library(library("lost_row", "other"))
    assert not hasattr(nd, "lost_row")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_named_pipe_is_refused(tmp_path):
    """Reading it would wait for ever for somebody who writes."""
    code = f"""
        import os
        import rsnet as mx
        os.mkfifo({str(tmp_path / "pipe.so")!r})
        try:
            mx.load_library({str(tmp_path / "pipe.so")!r})
        except mx.MXNetError as error:
            print(error)
    """
    assert "it is not a regular file" in printed(code)

"""Names of OneFlow's and MXNet's C++ that the sources of their time use beyond the tutorials."""

import pytest
from plugins import compiled_text

import rsnet as mx
from rsnet import nd

pytestmark = pytest.mark.process  # the compiler is one

ONEFLOW = """
#include "oneflow/core/framework/framework.h"
namespace oneflow {
namespace {
using namespace user_op;
class Describe final : public OpKernel {
  void Compute(KernelComputeContext* ctx) const override {
    const TensorDesc* desc = ctx->TensorDesc4ArgNameAndIndex("x", 0);
    const TensorDesc* absent = ctx->TensorDesc4ArgNameAndIndex("bias", 0);
    const UserOpConfWrapper& conf = ctx->user_op_conf();
    Shape shape;
    ctx->Tensor4ArgNameAndIndex("x", 0)->shape().ToShape(&shape);
    float* y = ctx->Tensor4ArgNameAndIndex("y", 0)->mut_dptr<float>();
    y[0] = desc->shape().At(1);
    y[1] = desc->data_type() == DataType::kFloat && absent == nullptr;
    y[2] = shape.elem_cnt();
    y[3] = conf.attr<int32_t>("k") + conf.input_size("x");
  }
  bool AlwaysComputeWhenAllOutputsEmpty() const override { return false; }
};
REGISTER_USER_OP("on_describe").Input("x").OptionalInput("bias").Output("y")
    .Attr<int32_t>("k", UserOpAttrType::kAtInt32, 3)
    .SetTensorDescInferFn([](InferContext* ctx) -> Maybe<void> {
      *ctx->OutputShape("y", 0) = Shape({4});
      *ctx->OutputDType("y", 0) = ctx->InputDType("x", 0);
      return Maybe<void>::Ok();
    })
    .SetGetSbpFn([](SbpContext* ctx) -> Maybe<void> {
      int32_t k = ctx->user_op_conf().attr<int32_t>("k");
      if (!ctx->user_op_conf().has_input("bias", 0)) {
        ctx->NewBuilder().Split(OpArg("x", 0), k).Broadcast(OpArg("y", 0)).Build();
      }
      return Maybe<void>::Ok();
    });
REGISTER_USER_KERNEL("on_describe").SetCreateFn<Describe>().SetIsMatchedHob(HobTrue());
REGISTER_USER_OP("on_none").Output("y").SetTensorDescInferFn(TensorDescInferFnUtil::Unchanged);
REGISTER_USER_KERNEL("on_none").SetCreateFn<Describe>().SetIsMatchedHob(HobTrue());
}  // namespace
}  // namespace oneflow
"""

MXNET = """
#include <rsnet/mxnet.h>
namespace mxnet {
namespace op {
inline bool Shapes(const nnvm::NodeAttrs&, std::vector<TShape>*, std::vector<TShape>* out) {
  SHAPE_ASSIGN_CHECK(*out, 0, TShape({12}));
  return true;
}
// The extents of x, of shape (2, 3, 4), in other forms, and elements read through them.
void Forms(const nnvm::NodeAttrs&, const OpContext&, const std::vector<TBlob>& in,
           const std::vector<OpReqType>&, const std::vector<TBlob>& out) {
  const TBlob& x = in[0];
  float* y = out[0].dptr<float>();
  TBlob made(x.dptr_, x.shape_, cpu::kDevMask, x.type_flag_, 0);
  TBlob like(x.dptr<float>(), x.shape_, cpu::kDevMask);
  TBlob view = made.get<cpu, 3, float>();
  y[0] = made.shape_ == x.shape_ && like.type_flag_ == x.type_flag_ && view.shape_ == x.shape_;
  y[1] = made.dev_id() + made.dev_mask() == cpu::kDevMask;
  y[2] = x.reshape(TShape({4, 6})).get<cpu, 2, float>()[1][0];
  y[3] = x.shape_.FlatTo2D()[0];
  y[4] = x.FlatTo2D<cpu, float>()[5][3];
  y[5] = x.FlatTo3D<cpu, float>(1)[1][2][3];
  y[6] = x.FlatTo3D<cpu, float>(0, 1)[0][5][0];
  y[7] = x.shape_.FlatTo3D(2).shape_[0];
  y[8] = x.FlatToKD<cpu, 2, float>()[5][1];
  y[9] = x.FlatToKD<cpu, 4, float>().shape_[0];
  y[10] = x.FlatToKD<cpu, 1, float>().shape_[0];
  y[11] = x.FlatTo1D<cpu, float>()[23];
}
void Refused(const nnvm::NodeAttrs&, const OpContext&, const std::vector<TBlob>& in,
             const std::vector<OpReqType>&, const std::vector<TBlob>&) {
  in[0].ndim() == 3 ? in[0].reshape(TShape({5})) : in[0].reshape(TShape(in[0].shape_.FlatTo3D(7)));
}
#define OPERATOR(NAME, F)                                     \\
  NNVM_REGISTER_OP(NAME)                                      \\
      .set_num_inputs(1)                                      \\
      .set_num_outputs(1)                                     \\
      .set_attr<mxnet::FInferShape>("FInferShape", Shapes)    \\
      .set_attr<nnvm::FInferType>("FInferType", ElemwiseType<1, 1>) \\
      .set_attr<FCompute>("FCompute<cpu>", F)
OPERATOR(on_forms, Forms);
OPERATOR(on_refused, Refused);
}  // namespace op
}  // namespace mxnet
"""


@pytest.fixture(scope="module", autouse=True)
def library():
    return mx.load_library(compiled_text(ONEFLOW)), mx.load_library(compiled_text(MXNET))


def test_descriptions_and_configurations_in_oneflows_contexts():
    assert nd.on_describe(nd.ones((2, 5))).asnumpy().tolist() == [5, 1, 10, 4]
    assert [str(s) for s in mx.sbp.signatures("on_describe", (2, 5), k=1)][:1] == ["x:S(1) y:B"]
    with pytest.raises(mx.MXNetError, match="on_none: .*Unchanged: the operator has no inputs"):
        nd.on_none()


def test_forms_of_mxnets_blobs():
    x = nd.arange(24).reshape((2, 3, 4))
    expected = [1, 1, 6, 6, 23, 23, 20, 6, 21, 1, 24, 23]
    assert nd.on_forms(x).asnumpy().tolist() == expected
    with pytest.raises(mx.MXNetError, match="the new shape has another number of elements"):
        nd.on_refused(x).asnumpy()
    with pytest.raises(mx.MXNetError, match=r"FlatTo3D\(7, 7\) of a shape of 1 axes"):
        nd.on_refused(nd.ones(3)).asnumpy()

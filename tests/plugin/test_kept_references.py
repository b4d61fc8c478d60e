"""What OneFlow's contexts return by reference lives as long as they do; circles end in errors."""

import numpy as np
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
// Sums and lengths that are read through references to parts of attributes.
class Refer final : public OpKernel {
  void Compute(KernelComputeContext* ctx) const override {
    const auto& dims = ctx->Attr<Shape>("shape").dim_vec();
    const char* mode = ctx->Attr<std::string>("mode").c_str();
    const auto& arg = ctx->inputs()[0];
    float* y = ctx->Tensor4ArgNameAndIndex("y", 0)->mut_dptr<float>();
    y[0] = y[1] = 0;
    for (int64_t d : dims) y[0] += d;
    for (int64_t d : ctx->Attr<Shape>("shape").dim_vec()) y[1] += d;
    y[2] = std::string(mode).size();
    y[3] = arg.first == "x" && arg.second == 0;
  }
  bool AlwaysComputeWhenAllOutputsEmpty() const override { return false; }
};
// Asks for its arrays in every element, from several threads.
class Twice final : public OpKernel {
  void Compute(KernelComputeContext* ctx) const override {
    int64_t n = ctx->Tensor4ArgNameAndIndex("x", 0)->shape().elem_cnt();
    ctx->ParallelFor(n, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        ctx->Tensor4ArgNameAndIndex("y", 0)->mut_dptr<float>()[i] =
            2 * ctx->Tensor4ArgNameAndIndex("x", 0)->dptr<float>()[i];
      }
    });
  }
  bool AlwaysComputeWhenAllOutputsEmpty() const override { return false; }
};
}  // namespace
#define OPERATOR(NAME, KERNEL, MORE)                                              \\
  REGISTER_USER_OP(NAME).Input("x").Output("y") MORE                              \\
      .SetTensorDescInferFn(TensorDescInferFnUtil::Unchanged);                    \\
  REGISTER_USER_KERNEL(NAME).SetCreateFn<KERNEL>().SetIsMatchedHob(HobTrue());
OPERATOR("kr_refer", Refer,
         .Attr<Shape>("shape", UserOpAttrType::kAtShape, Shape({1, 2, 3}))
         .Attr<std::string>("mode", UserOpAttrType::kAtString, std::string(43, 'm')))
OPERATOR("kr_twice", Twice, )
OPERATOR("kr_old_circle", Twice, )
OPERATOR("kr_circle", Twice, )
REGISTER_USER_OP_GRAD("kr_old_circle")
    .SetGenBackwardOpConfFn([](const UserOpWrapper& op, AddOpFn AddOp) {
      UserOpConfWrapperBuilder builder("g");
      auto g = builder.Op("relu").Input("in", "g/out_0").Output("out").Build();
      AddOp(g);
      op.BindGradTensorWithOpInput(g.output("out", 0), "x", 0);
    });
REGISTER_USER_OP_GRAD("kr_circle").SetBackwardOpConfGenFn([](BackwardOpConfContext* ctx) {
  auto define = [&](const char* name, const char* other) {
    ctx->DefineOp(name, [=](BackwardOpBuilder& b) {
      return b.OpTypeName("relu").InputBind("in", ctx->GetOp(other).output("out", 0))
          .Output("out").Build();
    });
  };
  define("a", "b");
  define("b", "a");
  ctx->FwOp().InputGradBind(OpArg("x", 0), [=]() -> const std::string& {
    return ctx->GetOp("a").output("out", 0);
  });
});
}  // namespace oneflow
"""

MODIFIES = """
#include "oneflow/core/framework/framework.h"
namespace oneflow {
REGISTER_USER_OP("kr_modifies").Input("x").Output("y")
    .Attr<int32_t>("k", user_op::UserOpAttrType::kAtInt32, 3)
    .SetInputArgModifyFn([](user_op::GetInputArgModifier get,
                            const user_op::UserOpConfWrapper& conf) {
      const bool attribute = *std::getenv("RSNET_TEST_ASKS_FOR") == 'a';
      if (attribute ? conf.attr<int32_t>("k") > 2 : conf.has_input("x", 0)) {
        get("x", 0)->set_requires_grad(false);
      }
    })
    .SetTensorDescInferFn(user_op::TensorDescInferFnUtil::Unchanged);
}  // namespace oneflow
"""

MXNET = """
#include <rsnet/mxnet.h>
namespace mxnet {
namespace op {
void Compute(const nnvm::NodeAttrs&, const OpContext&, const std::vector<TBlob>& in,
             const std::vector<OpReqType>&, const std::vector<TBlob>& out) {
  for (size_t i = 0; i < out[0].Size(); ++i) out[0].dptr<float>()[i] = in[0].dptr<float>()[i];
}
std::vector<nnvm::NodeEntry> Circle(const nnvm::NodePtr&, const std::vector<nnvm::NodeEntry>&) {
  nnvm::NodePtr a = nnvm::Node::Create();
  a->attrs.op = nnvm::Op::Get("relu");
  a->attrs.name = "a";
  a->inputs.push_back(nnvm::NodeEntry{a, 0, 0});
  return {nnvm::NodeEntry{a, 0, 0}};
}
NNVM_REGISTER_OP(kr_nnvm_circle)
    .set_num_inputs(1)
    .set_num_outputs(1)
    .set_attr<mxnet::FInferShape>("FInferShape", ElemwiseShape<1, 1>)
    .set_attr<nnvm::FInferType>("FInferType", ElemwiseType<1, 1>)
    .set_attr<FCompute>("FCompute<cpu>", Compute)
    .set_attr<nnvm::FGradient>("FGradient", Circle);
}  // namespace op
}  // namespace mxnet
"""


@pytest.fixture(scope="module", autouse=True)
def library():
    return mx.load_library(compiled_text(ONEFLOW)), mx.load_library(compiled_text(MXNET))


def test_parts_of_attributes_and_lists_of_inputs_stay():
    assert nd.kr_refer(nd.ones(4)).asnumpy().tolist() == [6, 6, 43, 1]
    got = nd.kr_refer(nd.ones(4), shape=(100, 200, 300), mode="x" * 400)
    assert got.asnumpy().tolist() == [600, 600, 400, 1]


def test_threads_of_a_kernel_share_its_arrays():
    x = np.random.default_rng(0).standard_normal(20_000).astype("float32")
    np.testing.assert_array_equal(nd.kr_twice(nd.array(x)).asnumpy(), 2 * x)


@pytest.mark.parametrize("name", ["kr_old_circle", "kr_circle", "kr_nnvm_circle"])
def test_a_gradient_that_depends_on_itself_is_an_error(name):
    x = nd.ones(3)
    x.attach_grad()
    with mx.autograd.record():
        y = getattr(nd, name)(x)
    with pytest.raises(mx.MXNetError, match=f"{name}.*depends on its own output"):
        y.backward()


@pytest.mark.parametrize("what", ["attribute", "input"])
def test_flags_of_arguments_cannot_depend_on_a_call(what, monkeypatch):
    monkeypatch.setenv("RSNET_TEST_ASKS_FOR", what)
    with pytest.raises(mx.MXNetError, match="'kr_modifies': its attributes and arrays are not"):
        mx.load_library(compiled_text(MODIFIES))

"""Kernels that may take long run on workers, beside Python and beside one another: those of
operators that say so, and those on many elements."""

import pytest
from plugins import compiled, compiled_rust, compiled_text
from processes import printed

# A kernel that waits in vain must not keep the tests; compiling a crate takes minutes.
pytestmark = [pytest.mark.process, pytest.mark.slow]

#: As `waiting.c`, in MXNet's interface.
NNVM = """
#include <rsnet/mxnet.h>
#include <unistd.h>
namespace mxnet {
namespace op {
struct WaitParam : public dmlc::Parameter<WaitParam> {
  int from, to;
  DMLC_DECLARE_PARAMETER(WaitParam) {
    DMLC_DECLARE_FIELD(from);
    DMLC_DECLARE_FIELD(to);
  }
};
DMLC_REGISTER_PARAMETER(WaitParam);
void Compute(const nnvm::NodeAttrs& attrs, const OpContext&, const std::vector<TBlob>& in,
             const std::vector<OpReqType>&, const std::vector<TBlob>& out) {
  const WaitParam& param = nnvm::get<WaitParam>(attrs.parsed);
  unsigned char byte = 1;
  CHECK_EQ(write(param.to, &byte, 1), 1);
  CHECK_EQ(read(param.from, &byte, 1), 1);
  for (size_t i = 0; i < in[0].Size(); ++i) {
    out[0].dptr<float>()[i] = in[0].dptr<float>()[i] + byte;
  }
}
NNVM_REGISTER_OP(mx_wait)
    .set_attr_parser(ParamParser<WaitParam>)
    .set_num_inputs(1)
    .set_num_outputs(1)
    .set_attr<mxnet::FInferShape>("FInferShape", ElemwiseShape<1, 1>)
    .set_attr<nnvm::FInferType>("FInferType", ElemwiseType<1, 1>)
    .set_attr<FExecType>("FExecType", [](const NodeAttrs& attrs) {
      return attrs.op->name == "mx_wait" ? ExecType::kAsync : ExecType::kSync;
    })
    .set_attr<FCompute>("FCompute<cpu>", Compute)
    .add_argument("x", "NDArray-or-Symbol", "")
    .add_arguments(WaitParam::__FIELDS__());
}  // namespace op
}  // namespace mxnet
"""

#: In OneFlow's.
ONEFLOW = """
#include "oneflow/core/framework/framework.h"
#include <unistd.h>
using namespace oneflow;
REGISTER_USER_OP("of_wait").Input("x").Output("y").Attr<int32_t>("from").Attr<int32_t>("to").Long()
    .SetTensorDescInferFn(user_op::TensorDescInferFnUtil::Unchanged);
struct Wait final : user_op::OpKernel {
  bool AlwaysComputeWhenAllOutputsEmpty() const override { return false; }
  void Compute(user_op::KernelComputeContext* ctx) const override {
    const user_op::Tensor* x = ctx->Tensor4ArgNameAndIndex("x", 0);
    user_op::Tensor* y = ctx->Tensor4ArgNameAndIndex("y", 0);
    unsigned char byte = 1;
    CHECK_EQ(write(ctx->Attr<int32_t>("to"), &byte, 1), 1);
    CHECK_EQ(read(ctx->Attr<int32_t>("from"), &byte, 1), 1);
    for (int64_t i = 0; i < x->shape().elem_cnt(); ++i) {
      y->mut_dptr<float>()[i] = x->dptr<float>()[i] + byte;
    }
  }
};
REGISTER_USER_KERNEL("of_wait").SetCreateFn<Wait>().SetIsMatchedHob(
    user_op::HobDeviceTag() == "cpu");
"""

#: Pipes by which a call says that it has begun, and where it waits for an answer.
PIPES = """
import os
import rsnet as mx
from rsnet import nd, sym

mx.load_library({library!r})


class Pipes:
    def __init__(self):
        self.answers, self.answer = os.pipe()
        self.begun, self.begins = os.pipe()

    def call(self, module, x):
        return module.{name}(x, **{{"from": self.answers, "to": self.begins}})

    def wait(self):
        assert os.read(self.begun, 1) == bytes([1])

    def go_on(self, byte):
        os.write(self.answer, bytes([byte]))

"""

ALONE = """
one = Pipes()
y = one.call(nd, nd.ones(3))
one.wait()
one.go_on(4)
print(y.asnumpy())
"""

BESIDE = """
mx.engine.set_num_threads(2)
both = Pipes(), Pipes()
x = sym.var("x")
exe = sym.Group([each.call(sym, x * 2) + 1 for each in both]).simple_bind(
    mx.cpu(), x=({size},), grad_req="null"
)
exe.arg_dict["x"][:] = 1
exe.forward()
for each in both:
    each.wait()
for byte, each in enumerate(both):
    each.go_on(byte)
print(*[y.asnumpy()[-3:] for y in exe.outputs])
"""


def program(library, name):
    """The start of a program that calls the library's operator."""
    return PIPES.format(library=str(library), name=name)


#: The libraries of operators that say that they may take long, one of each interface.
LIBRARIES = {
    "c_wait": lambda: compiled("waiting.c"),
    "mx_wait": lambda: compiled_text(NNVM, "waiting.cc"),
    "of_wait": lambda: compiled_text(ONEFLOW, "waiting.cpp"),
    "rust_wait": lambda: compiled_rust("forms"),
}


@pytest.fixture(params=LIBRARIES)
def pipes(request):
    return program(LIBRARIES[request.param](), request.param)


def test_a_call_returns_while_its_kernel_waits_for_python(pipes):
    assert printed(pipes + ALONE) == "[5. 5. 5.]"


def test_nodes_that_do_not_need_each_other_run_at_the_same_time(pipes):
    assert printed(pipes + BESIDE.format(size=3)) == "[3. 3. 3.] [4. 4. 4.]"


def test_nodes_on_many_elements_do_so_by_themselves():
    pipes = program(compiled("waiting.c", "FLAGS=0"), "c_wait")
    assert printed(pipes + BESIDE.format(size=2049)) == "[3. 3. 3.] [4. 4. 4.]"

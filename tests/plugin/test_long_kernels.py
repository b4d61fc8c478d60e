"""Kernels of operators that may take long run on workers, beside Python and beside one another."""

import pytest
from plugins import compiled, compiled_text
from processes import printed

pytestmark = pytest.mark.process  # a kernel that waits in vain must not keep the tests

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
    mx.cpu(), x=(3,), grad_req="null"
)
exe.arg_dict["x"][:] = 1
exe.forward()
for each in both:
    each.wait()
for byte, each in enumerate(both):
    each.go_on(byte)
print(*[y.asnumpy() for y in exe.outputs])
"""


@pytest.fixture(params=["c_wait", "mx_wait"])
def pipes(request):
    """The start of a program, for an operator of each interface."""
    name = request.param
    library = compiled("waiting.c") if name == "c_wait" else compiled_text(NNVM, "waiting.cc")
    return PIPES.format(library=str(library), name=name)


def test_a_call_returns_while_its_kernel_waits_for_python(pipes):
    assert printed(pipes + ALONE) == "[5. 5. 5.]"


def test_nodes_that_do_not_need_each_other_run_at_the_same_time(pipes):
    assert printed(pipes + BESIDE) == "[3. 3. 3.] [4. 4. 4.]"

"""Kernels of operators that may take long run on workers, beside Python and beside one another."""

import os

import pytest
from plugins import compiled, compiled_text

import rsnet as mx
from rsnet import nd, sym

pytestmark = pytest.mark.process  # the compiler is one

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
    .set_attr<FExecType>("FExecType", [](const NodeAttrs&) { return ExecType::kAsync; })
    .set_attr<FCompute>("FCompute<cpu>", Compute)
    .add_argument("x", "NDArray-or-Symbol", "")
    .add_arguments(WaitParam::__FIELDS__());
}  // namespace op
}  // namespace mxnet
"""


@pytest.fixture(scope="module", autouse=True)
def library():
    mx.load_library(compiled("waiting.c"))
    mx.load_library(compiled_text(NNVM, "waiting.cc"))


class Pipes:
    """Where a call waits, and where it says that it has begun."""

    def __init__(self):
        self.answers, self.answer = os.pipe()
        self.begun, self.begins = os.pipe()

    @property
    def arguments(self):
        return {"from": self.answers, "to": self.begins}

    def wait(self):
        assert os.read(self.begun, 1) == b"\1"

    def go_on(self, byte):
        os.write(self.answer, bytes([byte]))

    def close(self):
        for end in (self.answers, self.answer, self.begun, self.begins):
            os.close(end)


@pytest.fixture
def pipes():
    both = Pipes(), Pipes()
    yield both
    for one in both:
        one.close()


@pytest.mark.parametrize("name", ["c_wait", "mx_wait"])
def test_a_call_returns_while_its_kernel_waits_for_python(name, pipes):
    one, _ = pipes
    y = getattr(nd, name)(nd.ones(3), **one.arguments)
    one.wait()
    one.go_on(4)
    assert y.asnumpy().tolist() == [5, 5, 5]


@pytest.mark.parametrize("name", ["c_wait", "mx_wait"])
def test_nodes_that_do_not_need_each_other_run_at_the_same_time(name, pipes):
    x, op = sym.var("x"), getattr(sym, name)
    ends = [op(x * 2, **each.arguments) + 1 for each in pipes]
    exe = sym.Group(ends).simple_bind(mx.cpu(), x=(3,), grad_req="null")
    exe.arg_dict["x"][:] = 1
    exe.forward()
    for each in pipes:
        each.wait()
    for byte, each in enumerate(pipes):
        each.go_on(byte)
    assert [y.asnumpy().tolist() for y in exe.outputs] == [[3, 3, 3], [4, 4, 4]]

"""Operators by attributes with any number of inputs."""

import numpy as np
import pytest
from definitions import computed, fresh

import rsnet as mx
from rsnet import MXNetError, nd, op


class CountParam(mx.Parameter):
    num_args: mx.uint32 = mx.field(doc="Number of inputs.")


@pytest.mark.parametrize("parser", [CountParam, dict])
def test_any_number_of_inputs(parser):
    name = f"t_doors_any_{parser.__name__}"
    entry = op.register(name).set_num_inputs(2**32 - 1).set_attr_parser(parser)
    entry.set_key_var_num_args("num_args").set_attr("FInferShape", op.ElemwiseShape(-1, 1))
    entry.set_attr(
        "FCompute<cpu>", lambda a, c, i, r, o: op.assign(o[0], r[0], sum(x.asnumpy() for x in i))
    )
    for n in (1, 3):
        arrays = [nd.array([1, 2]) for _ in range(n)]
        assert getattr(nd, name)(*arrays).asnumpy().tolist() == [n, 2 * n]
        s = getattr(mx.sym, name)(*(mx.sym.Variable(f"x{i}") for i in range(n)), num_args=n)
        assert s.bind(mx.cpu(), arrays).forward()[0].asnumpy().tolist() == [n, 2 * n]
        again = mx.sym.load_json(s.tojson())
        assert again.bind(mx.cpu(), arrays).forward()[0].asnumpy().tolist() == [n, 2 * n]


def test_any_number_of_inputs_needs_a_count():
    computed("t_doors_uncounted").set_num_inputs(op.kVarg)
    with pytest.raises(
        MXNetError, match="expected the name of the parameter .* by set_key_var_num_args"
    ):
        nd.t_doors_uncounted(nd.ones((1,)))


@pytest.mark.parametrize("n", [-1, 10**30, 2**16, 2.0, None, "3", True])
@pytest.mark.parametrize("which", ["inputs", "outputs"])
def test_functions_that_count_absurdly(which, n):
    name = fresh()
    entry = op.register(name)
    getattr(entry, f"set_num_{which}")(lambda attrs: n)
    computed(name)
    says = "0 to 65535" if which == "inputs" else "1 to 65535"
    with pytest.raises(
        MXNetError, match=f"{name}: invalid result of the function of set_num_{which} .*{says}"
    ):
        getattr(nd, name)(nd.ones((1,)))


def test_an_operator_may_have_no_inputs():
    entry = op.register("t_doors_source").set_num_inputs(0)
    entry.set_attr("FInferShape", lambda attrs, ins, outs: op.shape_assign(outs, 0, (2,)))
    entry.set_attr("FInferType", lambda attrs, ins, outs: op.type_assign(outs, 0, "int8"))
    entry.set_attr("FCompute<cpu>", lambda a, c, i, r, o: op.assign(o[0], r[0], 7))
    out = nd.t_doors_source()
    assert out.asnumpy().tolist() == [7, 7] and out.dtype == np.int8
    assert mx.sym.t_doors_source().bind(mx.cpu(), []).forward()[0].asnumpy().tolist() == [7, 7]
    with pytest.raises(MXNetError, match="number of outputs 0: expected 1 to"):
        op.register("t_doors_sink").set_num_outputs(0)

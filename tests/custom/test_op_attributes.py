"""Attributes of operators: each does something or is refused; states, identities, parsers."""

import numpy as np
import pytest

import rsnet as mx
from rsnet import MXNetError, autograd, nd, op

_count = iter(range(1000))


def entry(n_in=1, n_out=1, **how):
    name = f"t_attr{next(_count)}"
    e = op.register(name, **how).set_num_inputs(n_in).set_num_outputs(n_out)
    e.set_attr("FInferShape", op.ElemwiseShape(n_in, n_out))
    return e.set_attr("FInferType", op.ElemwiseType(n_in, n_out))


def fill(value):
    return lambda attrs, ctx, ins, req, outs: op.assign(outs[0], req[0], ins[0] * 0 + value)


def call(e, *arrays, **params):
    return getattr(nd, e.name)(*(arrays or (nd.ones((2,)),)), **params)


# Names
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("FInfershape", "FInferShape"), ("FCompute<tpu>", "FCompute<cpu>"),
        ("FCompute", "FCompute<cpu>"), ("FGradients", "FGradient"), ("FQ", ""),
    ],
)  # fmt: skip
def test_of_an_unknown_function_the_nearest_is_proposed(name, near):
    hint = f"did you mean '{near}'. " if near else ""
    listed = "expected one of: FListInputNames, .*FExecType"
    with pytest.raises(MXNetError, match=f"unknown attribute '{name}': {hint}{listed}"):
        entry().set_attr(name, lambda *a: None)


@pytest.mark.parametrize(
    "name", ["FInferStorageType", "FInputGraph", "FNDArrayFunction", "FResourceRequestEx"]
)
def test_what_is_not_supported_says_so(name):
    with pytest.raises(MXNetError, match=f"attribute {name} is not supported"):
        entry().set_attr(name, lambda *a: None)


def test_markers_are_free():
    e = entry().set_attr("TIsLayerOpBackward", True).set_attr("my own", {"a": 1})
    assert e.attr("TIsLayerOpBackward") is True and e.attr("my own") == {"a": 1}
    with pytest.raises(TypeError, match="invalid name of an attribute 3: expected a string"):
        e.set_attr(3, 4)


def test_a_refused_attribute_leaves_the_operator_as_it_was():
    e = entry().set_attr("FCompute<cpu>", fill(1))
    with pytest.raises(ValueError, match="invalid views 'jax'"):
        e.set_attr("FCompute<gpu>", fill(2), views="jax")
    with pytest.raises(MXNetError, match="FStatefulCompute<cpu> and FCompute<cpu> both compute"):
        e.set_attr("FStatefulCompute<cpu>", fill(2))
    assert "Stateful" not in repr(e) and call(e).asnumpy().tolist() == [1, 1]


@pytest.mark.parametrize("names", [("FCompute", "FComputeEx"), ("FComputeEx", "FCompute")])
def test_the_form_for_arrays_wins(names):
    e = entry()
    for name in names:
        e.set_attr(f"{name}<cpu>", fill(len(name)))
    assert call(e).asnumpy().tolist() == [10, 10]


def test_ways_to_execute():
    e = entry().set_attr("FCompute<cpu>", fill(1)).set_attr("FExecType", lambda attrs: "sync")
    assert call(e).asnumpy().tolist() == [1, 1]
    e.set_attr("FExecType", lambda attrs: "async", plevel=11)
    with pytest.raises(MXNetError, match="result of FExecType 'async': expected 'sync'"):
        call(e)


# Attributes of variables
# ---------------------------------------------------------------------------


def test_attributes_of_input_variables():
    class Slope(mx.Parameter):
        start: float = mx.field(0.25, doc="First value.")

    def on_compose(attrs, var, i):
        if i == 1:
            assert var.name == "gamma"
            var["__init__"] = f'["constant", {{"value": {attrs.parsed.start}}}]'
            var["__lr_mult__"] = 2.0

    e = entry(n_in=2).set_attr_parser(Slope)
    e.set_attr("FListInputNames", lambda attrs: ["data", "gamma"])
    e.set_attr("FSetInputVarAttrOnCompose", on_compose).set_attr("FCompute<cpu>", fill(1))
    s = getattr(mx.sym, e.name)(name="p", start=0.5)
    gamma = s.attr_dict()["p_gamma"]
    assert gamma["__init__"] == '["constant", {"value": 0.5}]' and gamma["__lr_mult__"] == "2.0"
    assert "__init__" not in s.attr_dict().get("p_data", {})
    own = mx.sym.Variable("g", lr_mult=7)
    s = getattr(mx.sym, e.name)(gamma=own, name="q")
    assert s.attr_dict()["g"]["__lr_mult__"] == "7" and "__init__" in s.attr_dict()["g"]


def test_errors_of_attributes_of_variables():
    def boom(attrs, var, i):
        raise KeyError("no such parameter")

    e = entry().set_attr("FSetInputVarAttrOnCompose", boom).set_attr("FCompute<cpu>", fill(1))
    with pytest.raises(KeyError, match="no such parameter"):
        getattr(mx.sym, e.name)()


# States, identities, parsers
# -----------------------------------------------------------------------


def test_a_state_goes_from_forward_to_backward():
    e = entry().set_attr("FCreateOpState", lambda attrs, ctx, shapes, types: {"calls": 0})
    backward = op.register("_backward_" + e.name).set_num_inputs(1).set_num_outputs(1)

    def forward(state, ctx, ins, req, outs):
        state["calls"] += 1
        op.assign(outs[0], req[0], ins[0] * state["calls"])

    def back(state, ctx, ins, req, outs):
        op.assign(outs[0], req[0], ins[0] * 10 * state["calls"])

    backward.set_attr("TIsBackward", True).set_attr("FStatefulCompute<cpu>", back)
    e.set_attr("FStatefulCompute<cpu>", forward)
    e.set_attr("FGradient", op.ElemwiseGradUseNone(backward.name))
    exe = getattr(mx.sym, e.name)(mx.sym.Variable("x")).simple_bind(mx.cpu(), x=(1,))
    exe.arg_dict["x"][:] = 1
    for calls in (1, 2, 3):
        assert exe.forward(is_train=True)[0].asscalar() == calls
        exe.backward(nd.ones((1,)))
        assert exe.grad_dict["x"].asscalar() == 10 * calls
    x = nd.ones((1,))
    x.attach_grad()
    with autograd.record():
        y = call(e, x)
    y.backward()
    assert y.asscalar() == 1 and x.grad.asscalar() == 10


def test_a_stateful_function_without_a_state():
    e = entry().set_attr("FStatefulCompute<cpu>", lambda *a: None)
    with pytest.raises(MXNetError, match="expected FCreateOpState, which makes the state"):
        call(e).asnumpy()


def test_names_and_numbers_are_asked_for_once():
    class Factor(mx.Parameter):
        factor: int = 1

    asked = []

    def answering(attribute, answer):
        return lambda attrs: asked.append(attribute) or answer

    e = entry().set_attr_parser(Factor).set_attr("FCompute<cpu>", fill(1))
    for attribute, answer in (
        ("FListInputNames", ["x"]), ("FListOutputNames", ["y"]), ("FNumVisibleOutputs", 1),
        ("FMutateInputs", []), ("FIgnoreInputs", []), ("FInplaceOption", [(0, 0)]),
    ):  # fmt: skip
        e.set_attr(attribute, answering(attribute, answer))
    asked.clear()
    call(e, factor=3).wait_to_read()
    # The core asks for in-place pairs too, after the check at the call.
    assert sorted(asked) == sorted(["FListInputNames", "FListOutputNames", "FNumVisibleOutputs",
        "FMutateInputs", "FIgnoreInputs", "FInplaceOption", "FInplaceOption"])  # fmt: skip


@pytest.mark.parametrize("same", [True, False])
def test_an_identity_shares_bytes_although_others_read_them(same):
    """An operator that returns its input as it is may share the memory of one read elsewhere."""
    e = entry().set_attr("FInplaceOption", lambda attrs: [(0, 0)])
    e.set_attr("FInplaceIdentity", lambda attrs: [same])
    e.set_attr("FCompute<cpu>", lambda a, c, ins, req, outs: op.assign(outs[0], req[0], ins[0]))
    h = mx.sym.exp(mx.sym.Variable("x"), name="h")
    net = getattr(mx.sym, e.name)(h, name="i") * h
    plan = {x.name: x for x in net.memory_plan(grad_req="null", x=(64,)).entries}
    assert (plan["i_output"].inplace_of == "h_output") is same
    exe = net.simple_bind(mx.cpu(), grad_req="null", x=(2,))
    exe.arg_dict["x"][:] = 0
    assert exe.forward()[0].asnumpy().tolist() == [1, 1]


def test_an_identity_needs_options():
    e = (
        entry()
        .set_attr("FInplaceIdentity", lambda attrs: [True])
        .set_attr("FCompute<cpu>", fill(1))
    )
    with pytest.raises(MXNetError, match="expected FInplaceOption, which FInplaceIdentity"):
        call(e)


def test_a_function_may_parse_parameters():
    def parse(texts):
        unknown = set(texts) - {"factor"}
        if unknown:
            raise MXNetError(f"unknown parameters {sorted(unknown)}")
        return float(texts.get("factor", "2"))

    e = entry().set_attr_parser(parse).add_arguments([("factor", "float, default=2", "How much.")])

    def compute(attrs, ctx, ins, req, outs):
        op.assign(outs[0], req[0], ins[0] * attrs.parsed)

    e.set_attr("FCompute<cpu>", compute)
    assert call(e).asnumpy().tolist() == [2, 2]
    assert call(e, factor=3).asnumpy().tolist() == [3, 3]
    s = mx.sym.load_json(getattr(mx.sym, e.name)(mx.sym.Variable("x"), factor=4).tojson())
    assert s.bind(mx.cpu(), {"x": nd.ones((1,))}).forward()[0].asscalar() == 4
    with pytest.raises(MXNetError, match="unknown parameters"):
        call(e, speed=1)
    assert "factor : float, default=2\n    How much." in getattr(nd, e.name).__doc__
    with pytest.raises(TypeError, match="a Parameter class or a function"):
        e.set_attr_parser(3)


def test_views_of_a_whole_operator():
    seen = []

    def compute(attrs, ctx, ins, req, outs):
        seen.append(type(ins[0]))
        outs[0][...] = ins[0]

    e = entry(views="numpy").set_attr("FCompute<cpu>", compute)
    assert call(e).asnumpy().tolist() == [1, 1] and seen == [np.ndarray]
    with pytest.raises(ValueError, match="invalid views 'jax'"):
        op.register(e.name, views="jax")


def test_elementwise_inference_names_operator_and_node():
    e = entry(n_in=2).set_attr("FCompute<cpu>", fill(1))
    s = getattr(mx.sym, e.name)(mx.sym.Variable("a"), mx.sym.Variable("b"), name="my_node")
    with pytest.raises(MXNetError, match="t_attr.*invalid shape of input 1 .*expected") as caught:
        s.infer_shape(a=(2,), b=(3,))
    notes = " ".join(getattr(caught.value, "__notes__", []))
    assert f"in node {e.name}" not in str(caught.value) and "my_node" in str(caught.value) + notes


# What classes say of themselves
# ----------------------------------------------------------------------


class Twice(mx.Operator):
    def __init__(self, way="sync"):
        self.way = way

    def forward(self, ctx, in_data, req, out_data, aux_states):
        self.assign(out_data[0], req[0], 2 * in_data[0])

    def exec_type(self):
        return self.way


def test_ways_to_execute_of_operators():
    def way(name, value):
        class Property(mx.OperatorProperty):
            def infer_shape(self, in_shape):
                return in_shape, [in_shape[0]], []

            def create_operator(self, ctx):
                return Twice(value)

        mx.operator.register(name)(Property)
        return getattr(nd, name)(nd.ones((1,))).asnumpy().tolist()

    assert way("t_way_sync", "sync") == [2]
    with pytest.raises(MXNetError, match="result of exec_type 'async': expected 'sync'"):
        way("t_way_async", "async")


@pytest.mark.parametrize("method", ["infer_storage_type", "infer_storage_type_backward"])
def test_storage_types_of_custom_operators(method):
    def registered(name, kind):
        def answer(self, *parts):
            return tuple([kind] * len(p) for p in parts)

        class Prop(mx.operator.CustomOpProp):
            def create_operator(self, ctx, shapes, types):
                return mx.operator.CustomOp()

        setattr(Prop, method, answer)
        mx.operator.register(name)(Prop)
        return nd.Custom(nd.ones((1,)), op_type=name)

    registered(f"t_dense_{method}", "default").wait_to_read()
    with pytest.raises(MXNetError, match=f"result of {method} .*: expected 'default' storage only"):
        registered(f"t_sparse_{method}", "row_sparse")


@pytest.mark.parametrize("n", [-1, 2**16, 2**32, 10**30, 1.5, "2", True])
def test_absurd_numbers_of_operands_are_refused(n):
    entry = op.register(f"attributes_count_{n}".replace(".", "_").replace("-", "m"))
    with pytest.raises(mx.MXNetError, match="invalid number of inputs"):
        entry.set_num_inputs(n)
    with pytest.raises(mx.MXNetError, match="invalid number of outputs"):
        entry.set_num_outputs(n)

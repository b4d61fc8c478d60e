"""What a first operator gets wrong: it is refused where it is written, or by a message that names
the operator.
"""

import contextlib
import functools

import pytest

import rsnet as mx
from rsnet import autograd, nd, op, sym
from rsnet._operators import custom_op, registry


class Factor(mx.Parameter):
    k: int = 2


class Empty(mx.Parameter):
    pass


class Twice(mx.Operator):
    def forward(self, ctx, in_data, req, out_data, aux_states):
        self.assign(out_data[0], req[0], in_data[0] * 2)


class Plain(mx.OperatorProperty):
    def infer_shape(self, in_shape):
        return in_shape, in_shape, []

    def create_operator(self, ctx):
        return Twice()


def registered_by_attributes(name):
    def compute(attrs, ctx, inputs, req, outputs):
        op.assign(outputs[0], req[0], inputs[0] * 2)

    entry = op.register(name).set_attr_parser(Empty)
    entry.set_attr("FInferShape", op.ElemwiseShape(1, 1)).set_attr("FCompute<cpu>", compute)


def user_operator(name):
    op.define(name, inputs="x", infer=lambda ctx: ctx.out("out").like(ctx.inp("x")))
    op.kernel(name)(lambda ctx: ctx.assign("out", ctx.inp("x") * 2))


#: Ways to write an operator that doubles and has no parameters, or a struct without fields.
WITHOUT_PARAMETERS = {
    "function": lambda name: op.op(name)(lambda x: x * 2),
    "function_of_struct": lambda name: op.op(name, param=Empty)(lambda p, x: x * 2),
    "attributes": registered_by_attributes,
    "user_operator": user_operator,
    "class": lambda name: mx.operator.register(name)(type("Class", (Plain,), {})),
    "class_of_struct": lambda name: mx.operator.register(name)(
        type("ClassOfStruct", (Plain,), {"Param": Empty})
    ),
}


@pytest.fixture(params=WITHOUT_PARAMETERS)
def plain(request):
    """An operator without parameters."""
    name = f"mistakes_plain_{request.param}"
    if not hasattr(nd, name):
        WITHOUT_PARAMETERS[request.param](name)
    return name


@pytest.mark.parametrize("namespace", [nd, mx.sym])
def test_parameters_that_nobody_declared_are_refused(plain, namespace):
    x = nd.ones((2,)) if namespace is nd else mx.sym.var("x")
    with pytest.raises(mx.MXNetError, match=f"{plain}: unknown parameter 'k'"):
        getattr(namespace, plain)(x, k=3)


def test_attributes_of_nodes_are_no_parameters(plain):
    function = getattr(mx.sym, plain)
    with mx.AttrScope(ctx_group="first"):
        node = function(mx.sym.var("x"), name="node", attr={"lr_mult": "2"})
    exe = mx.sym.load_json(node.tojson()).simple_bind(mx.cpu(), grad_req="null", x=(1,))
    assert exe.forward(x=nd.ones((1,)))[0].asscalar() == 2
    assert getattr(nd, plain)(nd.ones((1,)), name="node").asscalar() == 2


@pytest.mark.parametrize(
    ("param", "function", "text"),
    [
        (None, lambda x, k=2: x * k, "argument 'k' of the function has a default"),
        (None, lambda x, y: x * y, r"the function takes \(x, y\), expected \(data\)"),
        (Factor, lambda x: x, r"the function takes \(x\), expected \(p, data\)"),
        (Factor, lambda x, k: x * k, "takes 'k', a field of Factor: expected p.k"),
    ],
)
def test_functions_with_other_arguments_are_refused(param, function, text):
    with pytest.raises(mx.MXNetError, match=f"mistakes_taken: .*{text}"):
        op.op("mistakes_taken", param=param)(function)
    assert not hasattr(nd, "mistakes_taken")


def test_functions_may_bind_values_by_name():
    op.op("mistakes_bound")(lambda x, *, k=3: x * k)
    assert nd.mistakes_bound(nd.ones((1,))).asscalar() == 3


def test_a_gradient_with_other_arguments_is_refused():
    f = op.op("mistakes_gradient")(lambda x: x)
    with pytest.raises(mx.MXNetError, match=r"takes \(x, y\), expected \(out_grads, inputs"):
        f.gradient(lambda x, y: x)


def test_an_operator_without_kernel_says_how_to_register_one():
    op.define("mistakes_bare", inputs="x", infer=lambda ctx: ctx.out("out").like(ctx.inp("x")))
    text = r"mistakes_bare: has no kernel: expected one, by op.kernel\('mistakes_bare'\)"
    with pytest.raises(mx.MXNetError, match=text):
        nd.mistakes_bare(nd.ones((2,)))
    symbol = mx.sym.mistakes_bare(mx.sym.var("x"))
    assert symbol.infer_shape(x=(2,))[1] == [(2,)]
    with pytest.raises(mx.MXNetError, match=text):
        symbol.simple_bind(mx.cpu(), grad_req="null", x=(2,))
    op.kernel("mistakes_bare")(lambda ctx: ctx.assign("out", ctx.inp("x")))
    assert nd.mistakes_bare(nd.ones((1,))).asscalar() == 1
    assert "kernel 'mistakes_bare#0'" in op.why("mistakes_bare", nd.ones((1,)))


class Careless(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0])


def registered(name, operator=Careless):
    class Prop(mx.operator.CustomOpProp):
        def create_operator(self, ctx, in_shapes, in_dtypes):
            return operator()

    mx.operator.register(name)(Prop)
    return lambda x: nd.Custom(x, op_type=name)


def test_a_custom_operator_without_backward_warns_once():
    name = "mistakes_forward_only"
    custom_op._without_backward.discard(name)
    function = registered(name)
    x = nd.ones((2,))
    x.attach_grad()
    expected = pytest.warns(UserWarning, match=f"'{name}' .Custom. has no backward")
    for warned in (expected, contextlib.nullcontext()):
        with autograd.record():
            y = function(x)
        with warned:
            y.backward()
            assert x.grad.asnumpy().tolist() == [0, 0]


def test_errors_of_custom_operators_name_the_op_type():
    class Returns(Careless):
        def forward(self, is_train, req, in_data, out_data, aux):
            return in_data[0]

    class Fails(Careless):
        def forward(self, is_train, req, in_data, out_data, aux):
            raise ZeroDivisionError("its own")

    with pytest.raises(mx.MXNetError, match="operator 'mistakes_returns' .Custom.: invalid result"):
        registered("mistakes_returns", Returns)(nd.ones((2,))).wait_to_read()
    with pytest.raises(ZeroDivisionError, match="its own") as caught:
        registered("mistakes_fails", Fails)(nd.ones((2,))).wait_to_read()
    notes = " ".join(caught.value.__notes__)
    assert "in forward of operator 'mistakes_fails' (Custom)" in notes


def test_an_unknown_op_type_where_none_is_registered(monkeypatch):
    monkeypatch.setattr(registry, "custom_props", {})
    with pytest.raises(mx.MXNetError, match="no operator of this name is registered"):
        nd.Custom(nd.ones((2,)), op_type="mistakes_nobody")


# What a decorator is given ------------------------------------------------------------------------


@pytest.mark.parametrize("names", ["a, b", "a,b", ("a", "b"), ["a", "b"]])
def test_names_of_inputs_are_written_as_those_of_user_operators(names):
    name = f"mistakes_two_{len(names)}_{type(names).__name__}"
    op.op(name, inputs=names, outputs="sum, product")(lambda a, b: (a + b, a * b))
    a, b = nd.array([2]), nd.array([3])
    assert [y.asscalar() for y in getattr(nd, name)(a, b=b)] == [5, 6]
    symbol = getattr(mx.sym, name)(name="t")
    assert symbol.list_arguments() == ["t_a", "t_b"]
    assert symbol.list_outputs() == ["t_sum", "t_product"]


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"inputs": "a*2"}, mx.MXNetError, "inputs 'a.2': expected names that stand for one array"),
        ({"inputs": "a, a"}, mx.MXNetError, r"inputs \['a', 'a'\]: expected every name once"),
        ({"inputs": 3}, mx.MXNetError, "inputs 3: expected a string or a list of strings"),
        ({"outputs": ""}, mx.MXNetError, "outputs: expected one at least"),
        ({"param": int}, TypeError, "param <class 'int'>: expected a subclass of rsnet.Parameter"),
    ],
)
def test_what_an_operator_is_made_of_is_checked_first(given, error, text):
    with pytest.raises(error, match=f"mistakes_made: invalid {text}"):
        op.op("mistakes_made", **given)
    assert not hasattr(nd, "mistakes_made")


@pytest.mark.parametrize("function", [5, len, int], ids=str)
def test_only_functions_of_python_are_decorated(function):
    with pytest.raises(TypeError, match="mistakes_function: invalid function .*: expected a func"):
        op.op("mistakes_function")(function)
    assert not hasattr(nd, "mistakes_function")


def test_a_function_of_two_inputs_is_told_how_to_name_them():
    with pytest.raises(mx.MXNetError, match=r"expected \(data\) \(op.op\(inputs=...\) names them"):
        op.op("mistakes_hint")(lambda a, b: a + b)


# What errors of user operators say ----------------------------------------------------------------


def copies(name, **parts):
    op.define(name, inputs="x", infer=lambda ctx: ctx.out("out").like(ctx.inp("x")), **parts)
    op.kernel(name)(lambda ctx: ctx.assign("out", ctx.inp("x")))
    return getattr(nd, name)


def test_a_check_names_the_value_that_it_refuses():
    function = copies(
        "mistakes_checked",
        attrs={
            "mode": op.Attr(
                str, "fast", check=lambda mode: mode in ("fast", "slow"), doc="How fast."
            )
        },
        check=lambda conf: conf.attr("mode") != "slow",
    )
    text = r"invalid attribute 'mode' 'medium': expected a value that its check accepts .How fast"
    with pytest.raises(mx.MXNetError, match=f"mistakes_checked: {text}"):
        function(nd.ones((1,)), mode="medium")
    with pytest.raises(mx.MXNetError, match="mistakes_checked: invalid attributes {'mode': 'slow'"):
        function(nd.ones((1,)), mode="slow")


def test_a_missing_gradient_is_asked_for_by_the_name_of_the_operator():
    function, x = copies("mistakes_no_gradient"), nd.ones((1,))
    x.attach_grad()
    with autograd.record():
        y = function(x)
    text = "mistakes_no_gradient: has no gradient: expected one, by op.grad"
    with pytest.raises(mx.MXNetError, match=rf"^{text}\('mistakes_no_gradient'\)"):
        y.backward()
    op.grad("mistakes_no_gradient")(lambda ctx: None)
    with autograd.record():
        y = function(x)
    text = "mistakes_no_gradient: expected a gradient of input 'x', got none: .* by ctx.bind"
    with pytest.raises(mx.MXNetError, match=f"^{text}"):
        y.backward()


def test_unknown_operators_are_told_the_nearest_name():
    copies("mistakes_nearest")
    for asked in (op.why, op.kernels):
        with pytest.raises(KeyError, match="not registered, did you mean 'mistakes_nearest'"):
            asked("mistakes_nearst")
    with pytest.raises(mx.MXNetError, match="not registered, did you mean 'mistakes_nearest'"):
        mx.user_op.definition("mistakes_nearst")


def test_why_wants_the_inputs_that_a_call_has():
    copies("mistakes_why")
    for name, inputs, text in (
        ("mistakes_why", [], "mistakes_why: invalid number of inputs 0: expected 1: x"),
        ("dot", [nd.ones((2, 2))], "dot: invalid number of inputs 1: expected 2: lhs, rhs"),
    ):
        with pytest.raises(mx.MXNetError, match=text):
            op.why(name, *inputs)
    assert "matches" in op.why("add_n", nd.ones((2,)), nd.ones((2,)))


@pytest.mark.parametrize("more", ["list_outputs", "list_auxiliary_states"])
def test_a_class_registered_later_must_fit_the_graph(more):
    class Prop(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return mx.operator.CustomOp()

    first, later = f"mistakes_first_{more}", f"mistakes_later_{more}"
    mx.operator.register(first)(Prop)
    text = sym.Custom(sym.var("data"), op_type=first).tojson()
    net = sym.load_json(text.replace(f'"{first}"', f'"{later}"'))
    names = {"list_outputs": ["a", "b"], "list_auxiliary_states": ["m"]}[more]
    mx.operator.register(later)(type("Later", (Prop,), {more: lambda self: names}))
    with pytest.raises(mx.MXNetError, match=f"class of op_type '{later}'.*1 inputs and 1 outputs"):
        net.simple_bind(mx.cpu(), data=(2,))


# A value where a function belongs ----------------------------------------------------------------


@pytest.mark.parametrize("base", [Plain, mx.operator.CustomOpProp])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("list_arguments", ["a", "b"]),
        ("list_outputs", ["a"]),
        ("list_auxiliary_states", []),
        ("declare_backward_dependency", [0]),
        ("infer_shape", None),
        ("create_operator", Twice()),
    ],
)
def test_values_in_the_place_of_methods_are_refused(base, name, value):
    cls = type("Valued", (base,), {name: value})
    text = rf"register\('mistakes_valued'\): invalid Valued.{name} .*: expected a method"
    with pytest.raises(TypeError, match=text):
        mx.operator.register("mistakes_valued")(cls)
    assert not hasattr(nd, "mistakes_valued")
    assert "mistakes_valued" not in registry.custom_props


@pytest.mark.parametrize("name", ["num_outputs", "num_visible_outputs", "forward_resource"])
def test_numbers_in_the_place_of_methods_are_refused(name):
    text = rf"register\('mistakes_valued'\): invalid Numbered.{name} 1: expected a method"
    with pytest.raises(TypeError, match=text):
        mx.operator.register("mistakes_valued")(type("Numbered", (Plain,), {name: 1}))


@pytest.mark.parametrize("struct", [{"eps": 1.0}, dict, Factor(k=3)])
def test_parameters_of_a_class_are_a_struct(struct):
    text = r"invalid Structured.Param .*: expected a subclass of rsnet.Parameter"
    with pytest.raises(TypeError, match=rf"register\('mistakes_struct'\): {text}"):
        mx.operator.register("mistakes_struct")(type("Structured", (Plain,), {"Param": struct}))


def test_an_output_is_like_an_operand_not_like_a_name():
    op.define("mistakes_like", inputs="in", infer=lambda ctx: ctx.out("out").like("in"))
    op.kernel("mistakes_like")(lambda ctx: None)
    text = r"invalid argument of like 'in': expected an input or output, such as ctx.inp\('in'\)"
    with pytest.raises(TypeError, match=f"infer: {text}"):
        nd.mistakes_like(nd.ones((1,)))


def test_a_check_of_an_attribute_is_a_function():
    with pytest.raises(TypeError, match="Attr: invalid check 'x > 0': expected a function"):
        op.Attr(float, 1.0, check="x > 0")


def test_descriptors_may_give_the_methods_of_a_class():
    class Double(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            self.assign(out_data[0], req[0], in_data[0] * 2)

    @mx.operator.register("test_mistakes_descriptor")
    class DoubleProp(mx.operator.CustomOpProp):
        create_operator = property(lambda self: lambda *given: Double())
        list_arguments = functools.cached_property(lambda self: lambda: ["x"])

    assert nd.Custom(nd.ones(2), op_type="test_mistakes_descriptor").asnumpy().tolist() == [2, 2]

"""What all ways of adding an operator share: names, counts, errors of what is not finished."""

import warnings

import numpy as np
import pytest
from definitions import computed, double, fresh

import rsnet as mx
from rsnet import MXNetError, autograd, nd, op


def one_of_them(ctx):
    ctx.out("out").like(ctx.inp("in"))


# Names --------------------------------------------------------------------------------------------

NO_NAMES = ["", " ", "a b", "a-b", "1a", "x?+", "a\n", "a.b", "lambda", "None"]


@pytest.mark.parametrize("name", NO_NAMES)
def test_operators_have_names_of_functions(name):
    ways = [
        op.register,
        op.op,
        lambda name: op.define(name, inputs="in", infer=one_of_them),
        lambda name: op.register("t_doors_alias").add_alias(name),
        lambda name: op.op("t_doors_aliased", aliases=[name])(lambda x: x),
    ]
    for way in ways:
        with pytest.raises(MXNetError, match="expected the name of a function"):
            way(name)
    if name:
        with pytest.raises(MXNetError, match="expected the name of a function"):
            mx.operator.register(name)(type("Prop", (mx.OperatorProperty,), {}))
    with pytest.raises(KeyError):
        op.get("t_doors_aliased")


def test_custom_operators_are_called_by_any_text():
    """`op_type` is a text, and argument names of a CustomOpProp are what MXNet takes."""

    class Prop(mx.operator.CustomOpProp):
        def list_arguments(self):
            return ["data-1"]

        def create_operator(self, ctx, shapes, dtypes):
            class Op(mx.operator.CustomOp):
                def forward(self, is_train, req, in_data, out_data, aux):
                    self.assign(out_data[0], req[0], in_data[0] + 1)

            return Op()

    mx.operator.register("t doors: any text")(Prop)
    assert nd.Custom(nd.zeros((1,)), op_type="t doors: any text").asnumpy().tolist() == [1]


@pytest.mark.parametrize("name", [n for n in NO_NAMES if not n.isidentifier()])
def test_inputs_and_outputs_have_names(name):
    with pytest.raises(MXNetError, match="invalid name "):
        entry = computed(fresh()).set_attr("FListInputNames", lambda attrs: [name])
        getattr(nd, entry.name)(nd.ones((1,)))

    class Prop(mx.OperatorProperty):
        def list_outputs(self):
            return [name]

    registered = fresh()
    mx.operator.register(registered)(Prop)
    with pytest.raises(MXNetError, match="invalid name "):
        getattr(nd, registered)(nd.ones((1,)))


ARGUMENTS = [
    *["x?+", "x+", "x?*2", "1x", "x y", "x,,y", "x,", "x*", "x*2++", "x*-1", "x*1.5", "x*2+ ?"],
    *[["x", ""], ["x", " "]],
]


@pytest.mark.parametrize("inputs", ARGUMENTS)
def test_arguments_that_are_not_of_the_form(inputs):
    with pytest.raises(MXNetError, match="expected name, name"):
        op.define("t_doors_form", inputs=inputs, infer=one_of_them)


@pytest.mark.parametrize("inputs", [3, None, b"x", [1], {"x"}])
def test_arguments_that_are_no_texts(inputs):
    with pytest.raises(
        MXNetError, match="invalid inputs .*: expected a string or a list of strings"
    ):
        op.define("t_doors_form", inputs=inputs, infer=one_of_them)


@pytest.mark.parametrize("count", ["0", "65536", "1" + "0" * 20, "9" * 100_000])
def test_absurd_counts_of_arguments(count):
    with pytest.raises(MXNetError, match="arrays of .* expected 1 to 65535"):
        op.define("t_doors_form", inputs=f"x*{count}+", infer=one_of_them)


@pytest.mark.parametrize("key", ["", "a b", "name", "out", "num_args", "ctx"])
def test_attributes_have_names_that_a_call_can_use(key):
    with pytest.raises(MXNetError, match=r"invalid name|a call has a use of its own|used twice"):
        op.define("t_doors_attr", inputs="x", attrs={key: op.Attr(int, 1)}, infer=one_of_them)


# Registering again --------------------------------------------------------------------------------


def cell(factor, gradient):
    @op.op("t_doors_cell", aliases=["t_doors_cell_too"])
    def f(x):
        """Multiplies."""
        return factor * x

    @f.gradient
    def _(out_grads, inputs, outputs):
        return gradient * out_grads[0]

    return f


def test_a_decorated_function_may_be_registered_again():
    old = cell(2, 20)
    s = mx.sym.t_doors_cell(mx.sym.Variable("x"))
    exe = s.simple_bind(mx.cpu(), x=(1,))
    x = nd.ones((1,))
    x.attach_grad()
    with autograd.record():
        recorded = nd.t_doors_cell(x)
    with pytest.warns(UserWarning, match="'t_doors_cell' is registered again") as seen:
        cell(3, 30)
    assert [w.filename for w in seen] == [__file__]
    recorded.backward()
    assert recorded.asscalar() == 2 and x.grad.asscalar() == 20
    exe.arg_dict["x"][:] = 1
    assert exe.forward(is_train=True)[0].asscalar() == 2
    exe.backward([nd.ones((1,))])
    assert exe.grad_dict["x"].asscalar() == 20
    with autograd.record():
        y = nd.t_doors_cell_too(x)
    y.backward()
    assert y.asscalar() == 3 and x.grad.asscalar() == 30
    assert (
        mx.sym.t_doors_cell(mx.sym.Variable("x")).bind(mx.cpu(), [x]).forward()[0].asscalar() == 3
    )
    with pytest.raises(MXNetError, match="invalid record, an old one: expected"):
        old.entry.describe("?")
    with pytest.raises(MXNetError, match="invalid record, an old one: expected"):
        old.gradient(lambda *args: None)


def test_a_gradient_may_be_registered_again():
    @op.op("t_doors_gradient")
    def f(x):
        return 1 * x

    for factor in (2, 3):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            f.gradient(lambda out_grads, inputs, outputs, k=factor: k * out_grads[0])
        assert len(seen) == factor - 2
        x = nd.ones((1,))
        x.attach_grad()
        with autograd.record():
            y = nd.t_doors_gradient(x)
        y.backward()
        assert x.grad.asscalar() == factor


def test_a_failed_cell_may_run_again():
    for aliases in (["relu"], []):
        try:
            op.op("t_doors_failed", aliases=aliases)(lambda x: x + 1)
        except MXNetError as error:
            assert "already registered" in str(error)
    assert nd.t_doors_failed(nd.zeros((1,))).asscalar() == 1


def test_the_decorator_replaces_nothing_else():
    computed("t_doors_plain")
    op.define("t_doors_defined", inputs="in", infer=one_of_them)
    for name in ("relu", "t_doors_plain", "t_doors_defined"):
        with pytest.raises(MXNetError, match="already registered"):
            op.op(name)(lambda x: x)
    op.op("t_doors_decorated")(lambda x: x)
    with pytest.raises(MXNetError, match="invalid plevel 10 of attribute"):
        op.register("t_doors_decorated").set_attr("FCompute<cpu>", double)


# Numbers of operands ------------------------------------------------------------------------------


# What is not finished -----------------------------------------------------------------------------


def test_what_an_operator_still_lacks():
    op.register("t_doors_unfinished")
    op.kernel("t_doors_undefined")(lambda ctx: None)
    op.grad("t_doors_undefined_too")(lambda ctx: None)
    for module in (nd, mx.sym):
        with pytest.raises(
            AttributeError, match=r"lacks a way to compute, set_attr\(.FCompute<cpu>"
        ):
            _ = module.t_doors_unfinished
        for name in ("t_doors_undefined", "t_doors_undefined_too"):
            with pytest.raises(AttributeError, match="no op.define says what it is"):
                getattr(module, name)
        assert not hasattr(module, "t_doors_no_such")


def test_help_lists_attributes_and_entries():
    doc = op.Entry.set_attr.__doc__
    for name in ("FInferShape", "FCompute<cpu>", "FGradient", "FStatefulCompute<cpu>"):
        assert f"{name} : (" in doc, name
    assert "set_attr" in op.register.__doc__ and "inputs, outputs" in op.GradNode.__doc__
    from rsnet._operators import attribute_table as table

    on_cpu = {n for n in (*table.FIELDS, *table.KERNELS) if not n.endswith("<gpu>")}
    assert on_cpu < set(table.FORMS)


# Absurd answers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("extent", [2**70, 2**63, -1])
def test_absurd_extents(extent):
    name = fresh()

    def shape(attrs, ins, outs):
        outs[0] = (extent,)

    op.register(name).set_attr("FInferShape", shape).set_attr("FCompute<cpu>", double)
    op.define(
        name + "_3", inputs="in", infer=lambda ctx: setattr(ctx.out("out"), "shape", (extent,))
    )
    for call in (name, name + "_3"):
        with pytest.raises(MXNetError, match=r"invalid shape of .* \(-?\d+,\): expected extents"):
            getattr(nd, call)(nd.ones((1,)))


def test_more_elements_than_there_are_bytes():
    for extents in ((2**62, 2**62), (2**62,)):
        name = f"t_doors_elements{len(extents)}"
        op.define(
            name, inputs="in", infer=lambda ctx, e=extents: setattr(ctx.out("out"), "shape", e)
        )
        op.kernel(name)(lambda ctx: None)
        with pytest.raises((MXNetError, MemoryError)):
            getattr(nd, name)(nd.ones((1,))).wait_to_read()


@pytest.mark.parametrize("size", ["8", 1.5, True, None, -1, 2**56 + 1, 2**63, 10**40])
def test_tmp_of_wrong_kinds(size):
    with pytest.raises(MXNetError, match="invalid tmp .*: expected bytes"):
        op.kernel("t_doors_tmp", tmp=size)
    name = fresh()
    op.define(name, inputs="in", infer=one_of_them)
    op.kernel(name, tmp=lambda ctx: size)(lambda ctx: None)
    with pytest.raises(MXNetError, match="invalid tmp .*: expected bytes"):
        getattr(nd, name)(nd.ones((1,))).wait_to_read()


def test_tmp_may_be_a_numpy_integer():
    op.define("t_doors_tmp_numpy", inputs="in", infer=one_of_them)

    @op.kernel("t_doors_tmp_numpy", tmp=lambda ctx: np.prod(ctx.inp("in").shape))
    def _(ctx):
        ctx.out("out")[:] = ctx.tmp.shape[0]

    assert nd.t_doors_tmp_numpy(nd.ones((2,))).asnumpy().tolist() == [2, 2]


# Gradients of user operators ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bind", "says"),
    [
        (lambda ctx: [ctx.bind("in", ctx.grad("out")) for _ in "12"], "second gradient of 'in'"),
        (lambda ctx: ctx.bind("in", None), "gradient of 'in' None: expected a GradEntry"),
        (lambda ctx: ctx.bind("in", 3), "gradient of 'in' 3: expected a GradEntry"),
        (lambda ctx: ctx.bind("in", lambda: None), "gradient of 'in' None: expected a GradEntry"),
        (
            lambda ctx: ctx.bind("in", lambda: np.ones(1)),
            r"gradient of 'in' array\(\[1.\]\): expected",
        ),
        (lambda ctx: ctx.bind("in", lambda: lambda: 0), "expected a GradEntry"),
        (lambda ctx: None, "expected a gradient of input 'in', got none"),
    ],
)
def test_bind_takes_one_entry_for_an_input(bind, says):
    name = fresh()
    op.define(name, inputs="in", infer=one_of_them)
    op.kernel(name)(lambda ctx: ctx.out("out").__setitem__(slice(None), ctx.inp("in")))
    op.grad(name)(bind)
    x = nd.ones((1,))
    x.attach_grad()
    with autograd.record():
        y = getattr(nd, name)(x)
    with pytest.raises(MXNetError, match=says):
        y.backward()
    with pytest.raises(MXNetError, match=says):
        getattr(mx.sym, name)(mx.sym.Variable("x")).simple_bind(mx.cpu(), x=(1,))


# Lists as attributes ------------------------------------------------------------------------------

KINDS = {
    "int32": 3, "int64": -(2**63), "bool": True, "float": 0.5, "double": 1e-300, "string": "it's",
    "shape": (2, 3), "data_type": "int8", "list_int32": (1, -2), "list_int64": (2**63 - 1,),
    "list_float": (0.5, -1.0), "list_data_type": ("float16", "bool"),
    "list_shape": ((1, 2), (), (3,)),
    "list_string": ("a, b", "", "it's", '"', "\\n\n(]"),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_attributes_of_every_kind_in_calls_and_files(kind):
    name, value = f"t_doors_kind_{kind}", KINDS[kind]
    seen = []
    op.define(
        name, inputs="in", attrs={"a": op.Attr(kind), "b": op.Attr(kind, value)}, infer=one_of_them
    )

    @op.kernel(name, where=(op.attr("a") == value) & (op.attr("b") == value))
    def _(ctx):
        seen.append((ctx.attr("a"), ctx.attr("b")))
        ctx.out("out")[:] = 1

    x = nd.ones((1,))
    as_list = list(value) if isinstance(value, tuple) else value
    for given in (value, as_list):
        getattr(nd, name)(x, a=given).wait_to_read()
        s = getattr(mx.sym, name)(mx.sym.Variable("x"), a=given)
        for graph in (s, mx.sym.load_json(s.tojson())):
            graph.bind(mx.cpu(), [x]).forward()[0].wait_to_read()
    assert seen == [(value, value)] * 6
    made = (
        mx.user_op_builder("y").Op(name).Input("in", [x]).Attr("a", as_list).Output("out").Build()
    )
    made.InferAndTryRun().SoleOutputBlob().wait_to_read()
    assert seen[-1] == (value, value)


def test_lists_of_types_take_types():
    op.define(
        "t_doors_types", inputs="in", infer=one_of_them, attrs={"types": op.Attr("list_data_type")}
    )
    op.kernel("t_doors_types")(lambda ctx: seen.append(ctx.attr("types")))
    seen = []
    types = [np.float32, np.dtype("int8"), "bool"]
    nd.t_doors_types(nd.ones((1,)), types=types).wait_to_read()
    s = mx.sym.t_doors_types(mx.sym.Variable("x"), types=types)
    mx.sym.load_json(s.tojson()).bind(mx.cpu(), [nd.ones((1,))]).forward()[0].wait_to_read()
    assert seen == [("float32", "int8", "bool")] * 2


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("list_string", [1]), ("list_string", "abc"), ("list_string", "(a, b)"), ("list_string", 3),
        ("list_string", "(" * 100_000), ("list_shape", [3]), ("list_shape", [("a",)]),
        ("list_shape", [[[1]]]), ("list_data_type", ["float33"]), ("list_int32", [2**31]),
        ("list_int32", ["1"]), ("list_int32", [1.5]), ("list_float", ["x"]),
    ],
)  # fmt: skip
def test_lists_of_other_things_are_refused(kind, value):
    name = f"t_doors_wrong_{kind}"
    if not hasattr(nd, name):
        op.define(name, inputs="in", attrs={"a": op.Attr(kind)}, infer=one_of_them)
        op.kernel(name)(lambda ctx: None)
    for call in (nd, mx.sym):
        x = nd.ones((1,)) if call is nd else mx.sym.Variable("x")
        with pytest.raises(MXNetError, match="invalid a .*: expected tuple of"):
            getattr(call, name)(x, a=value)


def test_great_integers_compare_exactly():
    op.define("t_doors_great", inputs="in", attrs={"n": op.Attr(int)}, infer=one_of_them)
    for k in range(3):
        op.kernel("t_doors_great", where=op.attr("n") == 2**53 + k)(
            lambda ctx, k=k: ctx.out("out").__setitem__(slice(None), k)
        )
    for k in range(3):
        assert nd.t_doors_great(nd.ones((1,)), n=2**53 + k).asscalar() == k


# What would be silently wrong ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["NDArray", "array", "contrib", "random", "Variable", "load_json"])
def test_operators_hide_nothing_of_rsnet(name):
    ways = [
        computed,
        lambda name: op.op(name)(lambda x: x),
        lambda name: op.define(name, inputs="in", infer=one_of_them),
        lambda name: mx.operator.register(name)(type("Prop", (mx.OperatorProperty,), {})),
    ]
    for way in ways:
        with pytest.raises(
            MXNetError, match=f"invalid name '{name}': expected .* would hide rsnet"
        ):
            way(name)
    assert isinstance(nd.array([1]), nd.NDArray) and mx.sym.Variable("x").name == "x"


@pytest.mark.parametrize(("what", "value"), [("shape", (7,)), ("dtype", "int8")])
def test_inference_does_not_change_inputs(what, value):
    name = fresh()
    op.define(name, inputs="in", infer=lambda ctx: setattr(ctx.inp("in"), what, value))
    op.kernel(name)(lambda ctx: None)
    with pytest.raises(TypeError, match=f"invalid write of the {what} of an input"):
        getattr(nd, name)(nd.ones((1,)))


@pytest.mark.parametrize("how", ["infer", "infer_dtype", "check", "attrs", "doc"])
def test_parts_of_other_kinds(how):
    parts = {"infer": one_of_them, how: 5}
    with pytest.raises(MXNetError, match=f"invalid {how} 5: expected a"):
        op.define("t_doors_parts", inputs="in", **parts)


def test_kernels_and_gradients_of_other_kinds():
    for register in (op.kernel, op.grad):
        with pytest.raises(TypeError, match="invalid name of an operator 5: expected a string"):
            register(5)
    with pytest.raises(MXNetError, match="invalid state 5: expected a function"):
        op.kernel("t_doors_parts", state=5)
    with pytest.raises(MXNetError, match="invalid gradient 5: expected a function"):
        op.grad("t_doors_parts")(5)
    with pytest.raises(MXNetError, match="invalid outputs: expected one at least"):
        op.define("t_doors_parts", inputs="in", outputs="", infer=one_of_them)


@pytest.mark.parametrize(
    ("gradient", "got"),
    [
        (lambda node, grads: [node.op("sum", grads[0])], r"float32 of shape \(1,\)"),
        (lambda node, grads: [node.op("Cast", grads[0], dtype="int8")], r"int8 of shape \(2,\)"),
    ],
)
def test_gradients_are_like_their_inputs(gradient, got):
    name = computed(fresh()).set_attr("FGradient", gradient).name
    x = nd.ones((2,))
    x.attach_grad()
    with autograd.record():
        y = getattr(nd, name)(x)
    says = f"gradient of input 'data' is {got}, expected float32 of shape .2,."
    with pytest.raises(MXNetError, match=says):
        y.backward()
    with pytest.raises(MXNetError, match=says):
        getattr(mx.sym, name)(mx.sym.Variable("x")).simple_bind(mx.cpu(), x=(2,))

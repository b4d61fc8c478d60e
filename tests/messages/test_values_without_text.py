"""Values that have no text, long ones, and what is no shape or type: errors say what was wrong."""

import numpy as np
import pytest

import rsnet as mx
from rsnet import nd, op, sym

LONG = "x" * 100_000
HUGE = 10**5000
EXTENTS = list(range(2, 5000))


class Silent:
    def __repr__(self):
        raise ZeroDivisionError("no text")


@pytest.mark.parametrize("value", [Silent(), HUGE, [Silent()], "\udcff"], ids=range(4))
def test_a_parameter_without_a_text_is_named(value):
    x = nd.ones((2, 3))
    for call in (
        lambda: nd.FullyConnected(x, x, num_hidden=value),
        lambda: sym.FullyConnected(sym.Variable("x"), num_hidden=value),
    ):
        with pytest.raises(
            mx.MXNetError, match="^FullyConnected.*: invalid num_hidden .*: exp.* int"
        ):
            call()
    with pytest.raises(mx.MXNetError, match="^Scale: invalid factor .*: expected int"):
        scale(mx.field(value))
    with pytest.raises(mx.MXNetError, match="^Scale: invalid factor .*: expected int"):
        scale(mx.field(1))(factor=value)


def test_what_is_interrupted_stays_so():
    class Stops:
        def __str__(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        nd.FullyConnected(nd.ones((2, 3)), num_hidden=Stops())


def test_the_type_of_an_operator_named_by_something_without_text():
    for face, data in ((nd, nd.ones((2,))), (sym, sym.Variable("x"))):
        with pytest.raises(mx.MXNetError, match="^Custom: invalid op_type <.*: expected string"):
            face.Custom(data, op_type=Silent())


def scale(field, kind=int):
    return type("Scale", (mx.Parameter,), {"__annotations__": {"factor": kind}, "factor": field})


@pytest.mark.parametrize(
    ("field", "kind", "text"),
    [
        (lambda: mx.field("x"), int, "Scale: invalid factor 'x': expected int"),
        (lambda: mx.field(5, ge="x"), int, "Scale.factor: invalid ge 'x': expected a number"),
        (lambda: mx.field(5, doc=3), int, "Scale.factor: invalid doc 3: expected a string"),
        (lambda: mx.field("s", ge=3), str, "Scale.factor: invalid ge 3: expected none for string"),
        (
            lambda: mx.field(5, ge=8, le=2),
            int,
            "Scale.factor: invalid le 2: expected at least ge, 8",
        ),
    ],
)
def test_fields_that_cannot_be(field, kind, text):
    with pytest.raises((TypeError, ValueError, mx.MXNetError)) as raised:
        scale(field(), kind)
    assert str(raised.value) == text


SHORT = 1000
X = sym.Variable("x")


def takes_long(name):
    op.define(name, inputs="in", infer=lambda ctx: ctx.out("out").like(ctx.inp("in")))
    op.kernel(name)(lambda ctx: None)
    return name


@pytest.mark.parametrize(
    "call",
    [
        lambda: nd.ones((6,)).reshape(EXTENTS),
        lambda: nd.zeros([0, *EXTENTS]),
        lambda: nd.reshape(nd.ones((6,)), shape=EXTENTS),
        lambda: (X * 2).simple_bind(mx.cpu(), x=EXTENTS),
        lambda: sym.FullyConnected(X, num_hidden=2, name="f").infer_shape(
            x=(2, 3), f_weight=tuple(EXTENTS)
        ),
        lambda: mx.operator.register(LONG)(3),
        lambda: nd.Custom(nd.ones((1,)), op_type=LONG),
        lambda: getattr(nd, takes_long("long_names"))(nd.ones((1,)), **{LONG: 1}),
        lambda: nd.FullyConnected(nd.ones((1, 1)), nd.ones((1, 1)), num_hidden=1, **{LONG: 1}),
        lambda: op.define("long_sbp", inputs="x", infer=lambda ctx: None, sbp=LONG),
        lambda: X.bind(mx.cpu(), {"x": nd.ones((1,))}, grad_req=LONG),
        lambda: nd.zeros((1,), ctx=LONG),
        lambda: X[LONG],
        lambda: op.Attr(LONG),
        lambda: scale(mx.field(1))(**{LONG: 1}),
        lambda: nd.zeros((1,), dtype=LONG),
        lambda: nd.zeros((1,), dtype=[[LONG]]),
        lambda: nd.ones((1,)).astype(LONG),
        lambda: sym.Variable("v", dtype=LONG),
        lambda: X.infer_type(x=LONG),
        lambda: X.simple_bind(mx.cpu(), type_dict={"x": LONG}, x=(1,)),
    ],
)
def test_long_values_are_cut(call):
    with pytest.raises(Exception, match="expected") as raised:
        call()
    texts = [str(raised.value), *getattr(raised.value, "__notes__", ())]
    assert max(map(len, texts)) < SHORT


def test_many_names_are_not_all_listed():
    for i in range(40):
        mx.operator.register(f"a_rather_long_name_of_an_operator_{i:02}")(Answers)
    with pytest.raises(mx.MXNetError, match=r"one of: .*, \.\.\. \(\d+ names\)") as raised:
        nd.Custom(nd.ones((1,)), op_type="no_such_operator")
    assert len(str(raised.value)) < SHORT


@mx.operator.register("takes_texts")
class TakesTexts(mx.operator.CustomOpProp):
    def __init__(self, **kwargs):
        super().__init__()
        self.taken.append(kwargs)

    def create_operator(self, ctx, shapes, dtypes):
        return mx.operator.CustomOp()


@pytest.mark.parametrize("x", [nd.ones((1,)), sym.Variable("x")])
@pytest.mark.parametrize(
    ("given", "text"),
    [({"kind": dict}, "<class 'dict'>"), ({"dtype": 5}, "5"), ({"dtype": np.float32}, "float32")],
)
def test_open_parameters_are_texts(x, given, text):
    TakesTexts.taken = []
    custom = nd.Custom if isinstance(x, nd.NDArray) else sym.Custom
    custom(x, op_type="takes_texts", **given)
    assert TakesTexts.taken[0] == dict.fromkeys(given, text)


def test_a_parameter_called_dtype_may_be_anything():
    class Sized(mx.Parameter):
        dtype: int = mx.field(default=100)

    assert Sized(dtype=5).dtype == 5
    with pytest.raises(mx.MXNetError, match=r"invalid shape .*Bad.*: expected Shape"):
        nd.reshape(nd.ones((1,)), shape=type("Bad", (), {}))


class Answers(mx.operator.CustomOpProp):
    answer = None

    def infer_shape(self, in_shape):
        return in_shape, [self.answer], []


mx.operator.register("answers_shapes")(Answers)


@pytest.mark.parametrize("shape", [b"ab", bytearray(b"ab"), {3, 4}, {3: 1, 4: 1}])
def test_what_holds_no_extents_in_order_is_no_shape(shape, monkeypatch):
    monkeypatch.setattr(Answers, "answer", shape)
    for call in (
        lambda: nd.zeros(shape),
        lambda: nd.empty(shape),
        lambda: nd.ones((7,)).reshape(shape),
        lambda: nd.random.uniform(shape=shape),
        lambda: sym.zeros(shape),
        lambda: sym.reshape(X, shape=shape),
        lambda: sym.Variable("v", shape=shape),
        lambda: X.infer_shape(x=shape),
        lambda: X.simple_bind(mx.cpu(), x=shape),
        lambda: nd.Custom(nd.ones((2,)), op_type="answers_shapes"),
    ):
        with pytest.raises((TypeError, mx.MXNetError), match="invalid shape|shape of 'output'"):
            call()


def test_a_text_is_a_shape_for_operators_alone():
    assert sym.reshape(X, shape="(3, 4)").infer_shape(x=(12,))[1] == [(3, 4)]
    with pytest.raises(TypeError, match="invalid shape '34': expected an int or a tuple of ints"):
        nd.zeros("34")


def test_shapes_that_variables_declare():
    for shape in ((2, 3), [2, 3], np.array([2, 3]), (np.int64(2), 3)):
        assert sym.Variable("v", shape=shape).infer_shape()[1] == [(2, 3)]
    assert sym.Variable("v", shape=4).infer_shape()[1] == [(4,)]
    with pytest.raises(TypeError, match="invalid shape of 'v' .*: expected an int or a tuple"):
        sym.Variable("v", shape=(2, "x"))


@pytest.mark.parametrize("dtype", ["real", 3.5, [["x"]], Silent(), "i4,("], ids=range(5))
def test_a_type_that_is_none(dtype):
    x = nd.ones((2,))
    for call in (
        lambda: nd.zeros((1,), dtype=dtype),
        lambda: nd.array([1], dtype=dtype),
        lambda: nd.random.uniform(dtype=dtype),
        lambda: sym.Variable("v", dtype=dtype),
        lambda: X.infer_type(x=dtype),
        lambda: X.simple_bind(mx.cpu(), type_dict={"x": dtype}, x=(1,)),
        lambda: x.astype(dtype),
    ):
        with pytest.raises((TypeError, mx.MXNetError), match="invalid dtype.*: expected"):
            call()
    with pytest.raises(TypeError, match="^Cast: invalid dtype <.*: expected one of: float32"):
        nd.Cast(x, dtype=Silent)


def test_authors_arguments_that_cannot_be():
    seen = []

    def infer(ctx):
        for call in (lambda: ctx.inp("x", "0"), lambda: ctx.attr(["a"]), lambda: ctx.inp(["x"])):
            with pytest.raises(mx.MXNetError, match="author: (invalid index|unknown)") as raised:
                call()
            seen.append(raised.value)
        ctx.out("out").like(ctx.inp("x"))

    op.define("author", inputs="x", infer=infer)
    op.kernel("author")(lambda ctx: None)
    nd.author(nd.ones((2,)))
    assert len(seen) == 3
    with pytest.raises(mx.MXNetError, match=r"Attr: unknown kind .*int32"):
        op.Attr(["int32"])
    for name in (np.zeros(3), nd.zeros((3,))):
        with pytest.raises(TypeError, match="no_author: invalid name of an attribute"):
            op.register("no_author").set_attr(name, 1)
    with pytest.raises(TypeError, match="Custom: invalid argument 'data' of type int"):
        sym.Custom(3, op_type="answers_shapes")
    for attr in (3, np.zeros(9)):
        with pytest.raises(TypeError, match="variable 'v': invalid attr .*: expected a dict"):
            sym.Variable("v", attr=attr)


def test_storage_types_in_nested_lists():
    class Nested(mx.operator.CustomOpProp):
        def infer_storage_type(self, in_stype):
            return [[["default"]]], [["default"]], []

    mx.operator.register("nested_storage")(Nested)
    with pytest.raises(mx.MXNetError, match="nested_storage: invalid result of infer_storage_type"):
        nd.Custom(nd.ones((2,)), op_type="nested_storage")


def test_extents_of_a_long_declared_shape_stay():
    """Messages cut shapes; files do not."""
    shape = (0, *[1] * 30)
    text = sym.Variable("v", shape=shape).tojson()
    with mx.util.np_shape(True):
        read = sym.load_json(text)
    assert read.list_attr()["__shape__"].count(",") == 30

"""OperatorProperty and Operator: one registered class is a whole operator."""

import inspect

import numpy as np
import pytest
from processes import printed
from subclassing import operator, prop, registered

import rsnet as mx
from rsnet import MXNetError, autograd, nd
from rsnet.operator import OpReq

F32 = np.float32


class ScaleParam(mx.Parameter):
    factor: float = mx.field(2.0, doc="What to multiply by.", ge=0)
    with_bias: bool = mx.field(False, doc="Add a bias.")


class Scale(mx.Operator):
    def __init__(self, param):
        self.param = param

    def forward(self, ctx, in_data, req, out_data, aux_states):
        y = in_data[0] * self.param.factor
        self.trained = ctx.is_train
        self.assign(out_data[0], req[0], y + in_data[1] if self.param.with_bias else y)

    def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux_states):
        self.assign(in_grad[0], req[0], out_grad[0] * self.param.factor)
        if self.param.with_bias:
            self.assign(in_grad[1], req[1], out_grad[0])


@mx.operator.register("t_scale")
class ScaleProperty(mx.OperatorProperty):
    """Multiplies by a factor."""

    Param = ScaleParam

    def list_arguments(self):
        return ["data", "bias"] if self.param.with_bias else ["data"]

    def infer_shape(self, in_shape):
        known = next((s for s in in_shape if s), ())
        return [known] * len(in_shape), [known], []

    def declare_backward_dependency(self, out_grad, in_data, out_data):
        return [out_grad[0]]

    def forward_inplace_option(self, in_data, out_data):
        return [(in_data[0], out_data[0])]

    def backward_inplace_option(self, out_grad, in_data, out_data, in_grad):
        return [(out_grad[0], in_grad[0])]

    def create_operator(self, ctx):
        return Scale(self.param)


def test_imperative_values_and_gradient():
    x, b = nd.array([1, 2]), nd.array([10, 20])
    x.attach_grad(), b.attach_grad()
    with autograd.record():
        y = nd.t_scale(x, b, factor=3, with_bias=True)
    y.backward(nd.array([1, 10]))
    assert y.asnumpy().tolist() == [13, 26]
    assert x.grad.asnumpy().tolist() == [3, 30] and b.grad.asnumpy().tolist() == [1, 10]


@pytest.mark.parametrize("req", ["write", "add", "null"])
def test_symbolic_with_every_request(req):
    s = mx.sym.t_scale(mx.sym.Variable("x"), factor=3, name="s")
    assert s.list_outputs() == ["s_output"]
    x, g = nd.array([1, 2]), nd.ones((2,))
    exe = s.bind(mx.cpu(), {"x": x}, args_grad={"x": g}, grad_req=req)
    exe.forward(is_train=True)
    exe.backward(nd.array([1, 10]))
    assert exe.outputs[0].asnumpy().tolist() == [3, 6]
    assert g.asnumpy().tolist() == {"write": [3, 30], "add": [4, 31], "null": [1, 1]}[req]


def test_automatic_variables_inference_and_json():
    s = mx.sym.t_scale(with_bias=True)
    assert s.list_arguments() == ["t_scale0_data", "t_scale0_bias"]
    args, outs, _ = s.infer_shape(t_scale0_data=(2, 3))
    assert args == [(2, 3)] * 2 and outs == [(2, 3)]
    assert mx.sym.load_json(s.tojson()).list_arguments() == s.list_arguments()


def test_signature_docs_and_arguments():
    assert "Multiplies by a factor." in nd.t_scale.__doc__
    assert "factor" in inspect.signature(nd.t_scale).parameters
    _, names, types = mx.operator.get_operator_arguments("t_scale")
    assert names == ["data", "factor", "with_bias"] and types[1] == "float, optional, default=2"


def test_parameter_mistakes():
    with pytest.raises(MXNetError, match="expected at least 0"):
        nd.t_scale(nd.ones((1,)), factor=-1)
    with pytest.raises(MXNetError, match="unknown parameter 'speed'"):
        mx.sym.t_scale(mx.sym.Variable("x"), speed=1)
    with pytest.raises(MXNetError, match="invalid number of inputs 2: expected 1"):
        nd.t_scale(nd.ones((1,)), nd.ones((1,)))


def test_params_and_copy():
    p = ScaleProperty()
    p.init({"factor": "3", "with_bias": "True"})
    assert p.get_params() == {"factor": "3.0", "with_bias": "True"}
    assert p.copy().param == p.param and p.copy() is not p
    assert p.type_string() == "t_scale"


def test_float32_unless_the_property_takes_others():
    with pytest.raises(MXNetError, match="invalid dtype of 'data' 'float64'"):
        nd.t_scale(nd.ones((1,), dtype="float64"))


def test_dtypes_by_infer_type():
    def forward(self, ctx, in_data, req, out_data, aux):
        assert out_data[0].dtype == np.int32
        self.assign(out_data[0], req[0], in_data[0])

    f = registered(
        "t_types",
        infer_type=lambda self, types: (types, [np.int32], []),
        create_operator=lambda self, ctx: operator(forward),
    )
    assert f(nd.array([1.5], dtype="float64")).dtype == np.int32


def test_state_is_kept_from_forward_to_backward_of_each_call():
    made = []

    class Op(mx.Operator):
        def forward(self, ctx, in_data, req, out_data, aux):
            made.append(self)
            self.seen = float(in_data[0].asnumpy()[0])
            self.assign(out_data[0], req[0], in_data[0])

        def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux):
            self.assign(in_grad[0], req[0], out_grad[0] * self.seen)

    f = registered("t_state", create_operator=lambda self, ctx: Op())
    a, b = nd.array([3.0]), nd.array([5.0])
    a.attach_grad(), b.attach_grad()
    with autograd.record():
        y = f(a) + f(b)
    y.backward()
    assert (a.grad.asscalar(), b.grad.asscalar()) == (3.0, 5.0) and len(set(made)) == 2


def test_auxiliary_states_are_updated():
    def forward(self, ctx, in_data, req, out_data, aux):
        if ctx.is_train:
            aux[0][:] = aux[0] + in_data[0]
        self.assign(out_data[0], req[0], in_data[0])

    def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0] * aux[0])

    registered(
        "t_aux",
        list_auxiliary_states=lambda self: ["total"],
        infer_shape=lambda self, s: (s, [s[0]], [s[0]]),
        create_operator=lambda self, ctx: operator(forward, backward),
    )
    s = mx.sym.t_aux(mx.sym.Variable("x"), name="a")
    assert s.list_auxiliary_states() == ["a_total"]
    exe = s.simple_bind(mx.cpu(), x=(2,))
    exe.arg_dict["x"][:] = 2
    exe.forward(is_train=True)
    exe.forward(is_train=True)
    exe.forward(is_train=False)
    exe.backward(nd.ones((2,)))
    assert exe.aux_dict["a_total"].asnumpy().tolist() == [4, 4]
    assert exe.grad_dict["x"].asnumpy().tolist() == [4, 4]


def test_hidden_outputs_and_undeclared_entries():
    seen = []

    def forward(self, ctx, in_data, req, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0])
        self.assign(out_data[1], req[1], in_data[0] * 7)

    def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux):
        seen.extend([len(out_grad), repr(in_data[0])])
        self.assign(in_grad[0], req[0], out_data[1] * out_grad[0])
        in_data[0].asnumpy()

    f = registered(
        "t_hidden",
        list_outputs=lambda self: ["output", "mask"],
        num_visible_outputs=lambda self: 1,
        infer_shape=lambda self, s: (s, [s[0]] * 2, []),
        infer_type=lambda self, t: (t, [F32] * 2, []),
        declare_backward_dependency=lambda self, og, i, o: [o[1], og[0]],
        create_operator=lambda self, ctx: operator(forward, backward),
    )
    x = nd.array([2.0])
    x.attach_grad()
    with autograd.record():
        y = f(x)
    assert isinstance(y, nd.NDArray)
    y.backward()
    with pytest.raises(MXNetError, match=r"in_data\[0\] of t_hidden is not in the declared"):
        x.grad.wait_to_read()
    assert seen[0] == 1 and "not in the declared" in seen[1]


def test_resources():
    seen = []

    def forward(self, ctx, in_data, req, out_data, aux):
        space = ctx.requested[0].get_space((3,), dtype="float64")
        random = ctx.requested["random"].get_random()
        seen.append((space.shape, space.dtype, ctx.run_ctx.ctx))
        self.assign(out_data[0], req[0], random.uniform(0, 1, shape=out_data[0].shape))

    f = registered(
        "t_noise",
        forward_resource=lambda self, s: [mx.ResourceRequest("temp_space"), "random"],
        create_operator=lambda self, ctx: operator(forward),
    )
    mx.random.seed(3)
    a, b = f(nd.zeros((4,))).asnumpy(), f(nd.zeros((4,))).asnumpy()
    mx.random.seed(3)
    assert f(nd.zeros((4,))).asnumpy().tolist() == a.tolist() != b.tolist()
    assert seen[0] == ((3,), np.float64, mx.cpu())


def test_requests_are_texts_with_numbers():
    assert [int(r) for r in OpReq] == [0, 1, 2, 3]
    assert OpReq.write == "write" and f"{OpReq.add}" == "add"
    dst = nd.ones((2,))
    for req, want in (("null", 1), ("write", 5), ("add", 10), (OpReq.inplace, 5)):
        mx.operator.assign(dst, req, nd.full((2,), 5))
        assert dst.asnumpy().tolist() == [want] * 2
    with pytest.raises(MXNetError, match="invalid req 'wirte'"):
        mx.operator.assign(dst, "wirte", dst)


def test_create_operator_ex_sees_shapes_and_types():
    seen = []

    def create(self, ctx, shapes, types):
        seen.append((ctx, shapes, types))
        return operator(lambda self, c, i, r, o, a: self.assign(o[0], r[0], i[0]))

    f = registered("t_create_ex", create_operator_ex=create)
    f(nd.ones((2, 3))).wait_to_read()
    assert seen == [(mx.cpu(), [(2, 3)], [F32])]


def test_registering_again_warns_and_bound_graphs_keep_the_old():
    def constant(value):
        return {"create_operator": lambda self, ctx: operator(
            lambda self, c, i, r, o, a: self.assign(o[0], r[0], i[0] * 0 + value))}  # fmt: skip

    registered("t_again", **constant(1))
    s = mx.sym.t_again(mx.sym.Variable("x"))
    exe = s.simple_bind(mx.cpu(), x=(1,))
    with pytest.warns(UserWarning, match="registered again"):
        registered("t_again", **constant(2))
    assert exe.forward()[0].asscalar() == 1
    assert nd.t_again(nd.ones((1,))).asscalar() == 2


def test_names_that_cannot_be_registered():
    with pytest.raises(MXNetError, match="none of a built-in operator|already registered"):
        mx.operator.register("relu")(prop())
    with pytest.raises(TypeError, match="subclass of OperatorProperty or CustomOpProp"):
        mx.operator.register("t_x")(int)
    with pytest.raises(TypeError, match="invalid name of an operator .*: expected a string"):
        mx.operator.register(3)
    with pytest.raises(MXNetError, match="type_string of Prop 'other'"):
        registered("t_named", type_string=lambda self: "other")


@mx.operator.register("t_scale_apart")
class ScaleApart(ScaleProperty):
    """The same without hints."""

    def forward_inplace_option(self, in_data, out_data):
        return []

    def backward_inplace_option(self, out_grad, in_data, out_data, in_grad):
        return []


@pytest.mark.parametrize("also_read", [False, True])
def test_inplace_hint_gives_equal_results(also_read):
    """The hint is taken where nobody else reads the input; refused, the results are the same."""
    results = []
    for name in ("t_scale", "t_scale_apart"):
        h = mx.sym.exp(mx.sym.Variable("x"), name="h")
        net = getattr(mx.sym, name)(h, factor=3, name="s")
        net = net + h if also_read else net + 1
        plan = {e.name: e for e in net.memory_plan(x=(4,), grad_req="null").entries}
        taken = plan["s_output"].inplace_of == "h_output"
        assert taken is (name == "t_scale" and not also_read)
        exe = net.simple_bind(mx.cpu(), x=(4,))
        exe.arg_dict["x"][:] = nd.array([1, 2, 3, 4])
        out = exe.forward(is_train=True)[0].asnumpy()
        exe.backward(nd.ones((4,)))
        results.append((out, exe.grad_dict["x"].asnumpy()))
    e = np.exp([1, 2, 3, 4])
    np.testing.assert_allclose(results[0][0], 4 * e if also_read else 3 * e + 1, rtol=1e-6)
    np.testing.assert_allclose(results[0][1], 4 * e if also_read else 3 * e, rtol=1e-6)
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.process
def test_a_gradient_can_be_used_again_after_backward_raised():
    """Dropping the error ends frames and the arrays in them, which must not meet the engine's
    locks.
    """
    code = """
    import rsnet as mx
    from rsnet import nd, autograd

    class Op(mx.Operator):
        def forward(self, ctx, in_data, req, out_data, aux):
            self.assign(out_data[0], req[0], in_data[0])
        def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux):
            raise KeyError("backward")

    @mx.operator.register("fails_backward")
    class Property(mx.OperatorProperty):
        def infer_shape(self, in_shape):
            return in_shape, [in_shape[0]], []
        def create_operator(self, ctx):
            return Op()

    x = nd.array([1.0, 2.0])
    x.attach_grad()

    def step(f):
        with autograd.record():
            y = f(x)
        y.backward()
        return x.grad.asnumpy().tolist()

    for _ in range(3):
        try:
            step(nd.fails_backward)
        except KeyError as error:
            print(type(error).__name__)
        x.grad[:] = 0
        print(x.grad.asnumpy().tolist(), step(lambda x: x * 2))
    """
    lines = printed(code).splitlines()
    assert lines == ["KeyError", "[0.0, 0.0] [2.0, 2.0]"] * 3


def test_builtin_operators_are_named_as_they_are():
    class Exp(mx.OperatorProperty):
        pass

    with pytest.raises(MXNetError, match="invalid name 'exp': expected none of a built-in"):
        mx.operator.register("exp")(Exp)


def test_an_operator_that_infers_no_shape_is_named_by_simple_bind():
    @mx.operator.register("ShapeUnknown")
    class ShapeUnknown(mx.OperatorProperty):
        def list_arguments(self):
            return ["data"]

        def infer_shape(self, in_shape):
            return None

    net = mx.sym.ShapeUnknown(mx.sym.Variable("x") * 2, name="here") + 1
    with pytest.raises(MXNetError, match="ShapeUnknown 'here'.*cannot be inferred"):
        net.simple_bind(mx.cpu(), x=(2,))


class Lazy(mx.Operator):
    def forward(self, ctx, in_data, req, out_data, aux_states):
        if ctx.is_train:
            self.assign(out_data[0], req[0], in_data[0])

    def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux_states):
        pass


@mx.operator.register("t_lazy")
class LazyProperty(mx.OperatorProperty):
    def list_arguments(self):
        return ["data"]

    def infer_shape(self, in_shape):
        return in_shape, [in_shape[0]], []

    def create_operator(self, ctx):
        return Lazy()


def test_what_a_function_leaves_unwritten_is_zero():
    x = nd.full((1000,), 3)
    x.attach_grad()
    nd.full((1000,), 42).wait_to_read()  # its bytes go back to the pool
    assert not nd.t_lazy(x).asnumpy().any()
    with autograd.record():
        y = nd.t_lazy(x)
    assert (y.asnumpy() == 3).all()
    nd.full((1000,), 42).wait_to_read()
    y.backward()
    assert not x.grad.asnumpy().any()


def test_what_a_function_leaves_out_of_an_output_is_zero():
    class Part(mx.Operator):
        def forward(self, ctx, in_data, req, out_data, aux_states):
            out_data[0][1:3] = 5

    class PartProperty(mx.OperatorProperty):
        def infer_shape(self, in_shape):
            return in_shape, [in_shape[0]], []

        def create_operator(self, ctx):
            return Part()

    mx.operator.register("subclass_part")(PartProperty)
    big = [nd.full((1000,), 7.0) for _ in range(20)]
    nd.waitall()
    del big  # whose memory is taken next
    y = nd.subclass_part(nd.ones((1000,))).asnumpy()
    assert y[1:3].tolist() == [5, 5] and y.sum() == 10

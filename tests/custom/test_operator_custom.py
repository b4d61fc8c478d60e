"""CustomOp and CustomOpProp as MXNet programs use them, and the deprecated NumpyOp and
NDArrayOp.
"""

import gc
import os
import weakref

import numpy as np
import pytest

import rsnet as mx
from rsnet import MXNetError, autograd, nd


class Sigmoid(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        x = in_data[0].asnumpy()
        self.assign(out_data[0], req[0], mx.nd.array(1.0 / (1.0 + np.exp(-x))))

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        y = out_data[0].asnumpy()
        g = out_grad[0].asnumpy()
        self.assign(in_grad[0], req[0], mx.nd.array(g * y * (1 - y)))


@mx.operator.register("t_sigmoid")
class SigmoidProp(mx.operator.CustomOpProp):
    def __init__(self):
        super().__init__(True)

    def create_operator(self, ctx, in_shapes, in_dtypes):
        return Sigmoid()


class Softmax(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        x = in_data[0].asnumpy()
        y = np.exp(x - x.max(axis=1).reshape((x.shape[0], 1)))
        y /= y.sum(axis=1).reshape((x.shape[0], 1))
        self.assign(out_data[0], req[0], mx.nd.array(y))

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        label = in_data[1].asnumpy().ravel().astype(int)
        y = out_data[0].asnumpy()
        y[np.arange(label.shape[0]), label] -= 1.0
        self.assign(in_grad[0], req[0], mx.nd.array(y))


@mx.operator.register("t_softmax")
class SoftmaxProp(mx.operator.CustomOpProp):
    def __init__(self):
        super().__init__(need_top_grad=False)

    def list_arguments(self):
        return ["data", "label"]

    def infer_shape(self, in_shape):
        data, label = in_shape[0], (in_shape[0][0],)
        return [data, label], [data], []

    def create_operator(self, ctx, shapes, dtypes):
        return Softmax()


def test_imperative_and_recorded():
    x = nd.array([[-1.0, 0.0], [1.0, 2.0]])
    y = 1 / (1 + np.exp(-x.asnumpy()))
    np.testing.assert_allclose(nd.Custom(x, op_type="t_sigmoid").asnumpy(), y, rtol=1e-6)
    x.attach_grad()
    with autograd.record():
        out = nd.Custom(x, op_type="t_sigmoid")
    out.backward()
    np.testing.assert_allclose(x.grad.asnumpy(), y * (1 - y), rtol=1e-5)


def test_symbolic_by_keyword_with_automatic_label():
    s = mx.sym.Custom(data=mx.sym.Variable("fc"), name="softmax", op_type="t_softmax")
    assert s.list_arguments() == ["fc", "softmax_label"]
    exe = s.simple_bind(mx.cpu(), fc=(2, 3))
    x = np.array([[1, 2, 3], [3, 2, 1]], "float32")
    exe.arg_dict["fc"][:] = x
    exe.arg_dict["softmax_label"][:] = nd.array([2, 0])
    exe.forward(is_train=True)
    exe.backward()
    y = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    np.testing.assert_allclose(exe.outputs[0].asnumpy(), y, rtol=1e-5)
    want = y - np.eye(3)[[2, 0]]
    np.testing.assert_allclose(exe.grad_dict["fc"].asnumpy(), want, rtol=1e-5, atol=1e-6)


def test_parameters_arrive_as_strings():
    seen = []

    @mx.operator.register("t_strings")
    class Prop(mx.operator.CustomOpProp):
        def __init__(self, a, foo="none", **kwargs):
            super().__init__()
            seen.append((a, foo, kwargs))

        def create_operator(self, ctx, shapes, dtypes):
            seen.append((str(ctx), shapes, dtypes))
            return mx.operator.CustomOp()

    nd.Custom(nd.ones((2, 3)), op_type="t_strings", a=3, foo=(1, 2), c=True).wait_to_read()
    assert seen[0] == ("3", "(1, 2)", {"c": "True"})
    assert ("cpu(0)", [[2, 3]], [0]) in seen
    with pytest.raises(TypeError, match="a"):
        nd.Custom(nd.ones((1,)), op_type="t_strings")
    s = mx.sym.Custom(mx.sym.Variable("x"), op_type="t_strings", a=4)
    t = mx.sym.load_json(s.tojson())
    assert t.list_arguments() == ["x"] and seen[-1][0] == "4"


def test_op_type_missing_or_unknown():
    with pytest.raises((MXNetError, TypeError), match="op_type"):
        nd.Custom(nd.ones((1,)))
    with pytest.raises(MXNetError, match="unknown op_type 't_unknown'"):
        nd.Custom(nd.ones((1,)), op_type="t_unknown")


def test_an_unregistered_operator_in_a_loaded_graph():
    s = mx.sym.Custom(mx.sym.Variable("x"), op_type="t_sigmoid", name="c")
    s = mx.sym.FullyConnected(s, num_hidden=2, name="fc")
    json = s.tojson().replace("t_sigmoid", "t_nowhere")
    t = mx.sym.load_json(json)
    assert t.list_arguments() == ["x", "fc_weight", "fc_bias"]
    assert "t_nowhere" in t.tojson()
    with pytest.raises(MXNetError, match="unknown op_type 't_nowhere'"):
        t.simple_bind(mx.cpu(), x=(1, 3))


def test_is_train_aux_and_several_outputs():
    seen = []

    class Op(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            seen.append((is_train, list(req)))
            aux[0][:] += 1
            for i in range(2):
                self.assign(out_data[i], req[i], in_data[0] * (i + 1))

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            self.assign(in_grad[0], req[0], out_grad[0] + 2 * out_grad[1])

    @mx.operator.register("t_several")
    class Prop(mx.operator.CustomOpProp):
        def list_outputs(self):
            return ["one", "two"]

        def list_auxiliary_states(self):
            return ["count"]

        def infer_shape(self, in_shape):
            return in_shape, [in_shape[0]] * 2, [[1]]

        def create_operator(self, ctx, shapes, dtypes):
            return Op()

    s = mx.sym.Custom(mx.sym.Variable("x"), op_type="t_several", name="s")
    assert s.list_outputs() == ["s_one", "s_two"] and s.list_auxiliary_states() == ["s_count"]
    exe = s.simple_bind(mx.cpu(), x=(2,))
    exe.arg_dict["x"][:] = 3
    exe.forward(is_train=True)
    exe.backward([nd.ones((2,)), nd.ones((2,))])
    assert [o.asnumpy().tolist() for o in exe.outputs] == [[3, 3], [6, 6]]
    assert exe.grad_dict["x"].asnumpy().tolist() == [3, 3]
    exe.forward(is_train=False)
    nd.waitall()
    assert exe.aux_dict["s_count"].asnumpy().tolist() == [2]
    assert seen == [(1, ["write", "write"]), (0, ["write", "write"])]


def test_dtypes_follow_the_first_input():
    y = nd.Custom(nd.zeros((2,), dtype="float64"), op_type="t_sigmoid")
    assert y.dtype == np.float64 and y.asnumpy().tolist() == [0.5, 0.5]


def test_registering_again_warns_and_replaces():
    class Twice(mx.operator.CustomOp):
        factor = 1

        def forward(self, is_train, req, in_data, out_data, aux):
            self.assign(out_data[0], req[0], in_data[0] * self.factor)

    def make(n):
        class Prop(mx.operator.CustomOpProp):
            def create_operator(self, ctx, shapes, dtypes):
                op = Twice()
                op.factor = n
                return op

        return Prop

    mx.operator.register("t_twice")(make(2))
    exe = mx.sym.Custom(mx.sym.Variable("x"), op_type="t_twice").simple_bind(mx.cpu(), x=(1,))
    exe.arg_dict["x"][:] = 1
    with pytest.warns(UserWarning, match="'t_twice' is registered again"):
        mx.operator.register("t_twice")(make(3))
    assert nd.Custom(nd.ones((1,)), op_type="t_twice").asscalar() == 3
    assert exe.forward()[0].asscalar() == 2


@pytest.mark.parametrize("where", ["constructor", "infer_shape", "create_operator"])
def test_errors_at_the_call(where):
    class Prop(mx.operator.CustomOpProp):
        def __init__(self):
            super().__init__()
            self._fail("constructor")

        def _fail(self, here):
            if where == here:
                raise KeyError("lost")

        def infer_shape(self, in_shape):
            self._fail("infer_shape")
            return super().infer_shape(in_shape)

        def create_operator(self, ctx, shapes, dtypes):
            self._fail("create_operator")

    mx.operator.register("t_err_" + where)(Prop)
    with pytest.raises(KeyError, match="lost"):
        nd.Custom(nd.ones((1,)), op_type="t_err_" + where)


@pytest.mark.parametrize("base", [mx.operator.NumpyOp, mx.operator.NDArrayOp])
def test_deprecated_operator_objects(base):
    class Double(base):
        def forward(self, in_data, out_data):
            assert isinstance(in_data[0], np.ndarray) == (base is mx.operator.NumpyOp)
            out_data[0][:] = in_data[0] * 2

        def backward(self, out_grad, in_data, out_data, in_grad):
            in_grad[0][:] = out_grad[0] * 2

    with pytest.warns(DeprecationWarning):
        op = Double()
    s = op(mx.sym.Variable("x"), name="d")
    exe = s.simple_bind(mx.cpu(), x=(2, 2))
    exe.arg_dict["x"][:] = 3
    exe.forward(is_train=True)
    exe.backward(nd.ones((2, 2)))
    assert exe.outputs[0].asnumpy().tolist() == [[6, 6], [6, 6]]
    assert exe.grad_dict["x"].asnumpy().tolist() == [[2, 2], [2, 2]]


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
def test_registering_a_class_of_operator_objects_leaves_it_as_it_is():
    with pytest.warns(UserWarning, match=r"register\('t_objects'\): Half is called as an object"):

        @mx.operator.register("t_objects")
        class Half(mx.operator.NumpyOp):
            def forward(self, in_data, out_data):
                out_data[0][:] = in_data[0] / 2

    exe = Half(False)(mx.sym.Variable("x")).simple_bind(mx.cpu(), grad_req="null", x=(2,))
    assert exe.forward(x=nd.array([2, 4]))[0].asnumpy().tolist() == [1, 2]
    with pytest.raises(MXNetError, match="unknown op_type 't_objects'"):
        nd.Custom(nd.ones((1,)), op_type="t_objects")


class Waits(mx.operator.CustomOp):
    def __init__(self, mode):
        self.mode = mode

    def forward(self, is_train, req, in_data, out_data, aux):
        if self.mode == "fail":
            raise KeyError("stranger")
        if self.mode == "own":
            lost = nd.Custom(in_data[0], op_type="t_waits", mode="fail")
            with pytest.raises(KeyError, match="stranger"):
                nd.waitall()
            del lost
        nd.waitall()
        self.assign(out_data[0], req[0], in_data[0])


@mx.operator.register("t_waits")
class WaitsProp(mx.operator.CustomOpProp):
    def __init__(self, mode):
        super().__init__()
        self.mode = mode

    def create_operator(self, ctx, shapes, dtypes):
        return Waits(self.mode)


@pytest.mark.skipif(
    os.environ.get("MXNET_ENGINE_TYPE") == "NaiveEngine", reason="that engine keeps no tasks apart"
)
def test_waitall_in_a_callback_leaves_the_errors_of_strangers():
    bad = nd.Custom(nd.ones((2,)), op_type="t_waits", mode="fail")
    for mode in ("wait", "own"):
        good = nd.Custom(nd.ones((2,)), op_type="t_waits", mode=mode)
        assert good.asnumpy().tolist() == [1, 1]
    with pytest.raises(KeyError, match="stranger"):
        bad.wait_to_read()


class Local:
    """Something of a function that calls an operator."""


@pytest.mark.parametrize("read", [False, True])
def test_a_failed_operator_keeps_no_frames(read):
    gone = []

    def step():
        local = Local()
        gone.append(weakref.ref(local))
        failed = nd.Custom(nd.ones((2,)), op_type="t_waits", mode="fail")
        for _ in range(2 if read else 0):
            with pytest.raises(KeyError, match="stranger") as caught:
                failed.asnumpy()
            places = [entry.name for entry in caught.traceback]
            assert places[-1] == "forward" and places[0] == "step"
            assert str(caught.traceback[-1].path) == __file__

    step()
    nd.waitall() if read else None
    gc.collect()
    assert gone[0]() is None
    if not read:
        with pytest.raises(KeyError):
            nd.waitall()


@pytest.mark.parametrize("method", ["infer_shape", "infer_type"])
def test_an_exception_of_inference_names_its_operator(method):
    def fails(self, given):
        raise KeyError("mine")

    mx.operator.register(f"fails_in_{method}")(
        type("P", (mx.operator.CustomOpProp,), {method: fails})
    )
    net = mx.sym.Custom(mx.sym.Variable("x"), op_type=f"fails_in_{method}", name="node")
    for call in (
        lambda: mx.nd.Custom(mx.nd.ones(2), op_type=f"fails_in_{method}"),
        lambda: net.simple_bind(mx.cpu(), x=(2,)),
    ):
        with pytest.raises(KeyError, match="mine") as caught:
            call()
        assert any(f"in {method} of 'fails_in_{method}'" in n for n in caught.value.__notes__)


def test_dtypes_are_asked_for_once():
    asked = []

    class Prop(mx.operator.CustomOpProp):
        def infer_type(self, in_type):
            asked.append(in_type[0])
            return super().infer_type(in_type)

        def create_operator(self, ctx, shapes, dtypes):
            return mx.operator.CustomOp()

    mx.operator.register("asked_once")(Prop)
    net = mx.sym.Custom(mx.sym.Variable("x"), op_type="asked_once")
    net.simple_bind(mx.cpu(), x=(2,))
    assert asked == [None, np.float32] or asked == [np.float32]
    asked.clear()
    assert net.infer_type(x="float16")[1] == [np.float16]
    assert asked == [np.float16]


def test_an_overridden_need_top_grad_counts_from_the_beginning():
    class Loss(mx.operator.NDArrayOp):
        def need_top_grad(self):
            return False

    with pytest.warns(DeprecationWarning):
        loss = Loss()
    assert loss.declare_backward_dependency([0], [1], [2]) == [1, 2]

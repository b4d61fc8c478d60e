"""Executors, groups of devices, cached graphs and operators written in Python, on devices."""

import numpy as np
import pytest
from conftest import assert_near
from run_cases import network

import rsnet as mx
from rsnet import nd


def trained(ctx, **how):
    """Parameters and states after some steps of training on a device."""
    mx.random.seed(3)
    rng = np.random.RandomState(3)
    net = network()
    exe = net.simple_bind(ctx=ctx, data=(8, 3, 6, 6), **how)
    names = [n for n in net.list_arguments() if n not in ("data", "softmax_label")]
    for name in names:
        exe.arg_dict[name][:] = rng.normal(0, 0.3, exe.arg_dict[name].shape)
    update = mx.optimizer.get_updater(mx.optimizer.SGD(learning_rate=0.1, momentum=0.9))
    for _ in range(3):
        data = rng.normal(size=(8, 3, 6, 6)).astype("float32")
        label = rng.randint(0, 6, 8).astype("float32")
        exe.forward(
            is_train=True,
            data=nd.array(data, ctx=ctx),
            softmax_label=nd.array(label, ctx=ctx),
        )
        exe.backward()
        for i, name in enumerate(names):
            update(i, exe.grad_dict[name], exe.arg_dict[name])
    arrays = {n: exe.arg_dict[n] for n in names} | exe.aux_dict
    assert all(a.context == ctx for a in arrays.values())
    return {n: a.asnumpy() for n, a in arrays.items()}


@pytest.mark.parametrize("how", [{}, {"grad_req": "add"}], ids=str)
def test_training_on_a_device_is_training_on_the_host(how, gpu):
    expected = trained(mx.cpu(), **how)
    got = trained(gpu, **how)
    for name, want in expected.items():
        np.testing.assert_allclose(got[name], want, rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    "devices",
    [(mx.cpu(0), mx.gpu(0)), (mx.gpu(0), mx.cpu(0)), (mx.gpu(0), mx.gpu(1))],
    ids=str,
)
@pytest.mark.parametrize("req", ["write", "add"])
def test_groups_on_different_devices(devices, req):
    def run(first, second):
        with mx.AttrScope(ctx_group="one"):
            x = mx.sym.Variable("x")
            y = mx.sym.tanh(x * 2, name="y")
        with mx.AttrScope(ctx_group="two"):
            w = mx.sym.Variable("w")
            z = mx.sym.broadcast_mul(y, w, name="z") + y
        groups = {"one": first, "two": second}
        exe = z.simple_bind(first, group2ctx=groups, x=(4, 5), w=(1, 5), grad_req=req)
        rng = np.random.RandomState(0)
        exe.arg_dict["x"][:] = rng.normal(size=(4, 5))
        exe.arg_dict["w"][:] = rng.normal(size=(1, 5))
        for grad in exe.grad_dict.values():
            grad[:] = 1
        for _ in range(2):
            out = exe.forward(is_train=True)[0]
            exe.backward(nd.ones((4, 5), ctx=second))
        assert out.context == second and exe.arg_dict["x"].context == first
        return [out.asnumpy(), exe.grad_dict["x"].asnumpy(), exe.grad_dict["w"].asnumpy()]

    for got, want in zip(run(*devices), run(mx.cpu(0), mx.cpu(0)), strict=True):
        assert_near(got, want)


# Some gradients here are zero but for rounding (a shift behind a batch normalisation), and Adam
# makes steps of full length of these. A greater epsilon makes results depend on the others alone.
@pytest.mark.parametrize(
    ("optimizer", "arguments"),
    [("sgd", {"learning_rate": 0.05}), ("adam", {"learning_rate": 0.05, "epsilon": 1e-3})],
    ids=["sgd", "adam"],
)
def test_gluon_and_its_cached_graph(gpu, optimizer, arguments):
    results = []
    for ctx in (mx.cpu(), gpu):
        mx.random.seed(1)
        net = mx.gluon.nn.HybridSequential()
        net.add(mx.gluon.nn.Dense(8, activation="relu"), mx.gluon.nn.BatchNorm())
        net.add(mx.gluon.nn.Dense(3))
        net.initialize(mx.init.Xavier(), ctx=ctx)
        net.hybridize()
        trainer = mx.gluon.Trainer(net.collect_params(), optimizer, dict(arguments))
        x = nd.array(np.random.RandomState(2).normal(size=(6, 4)), ctx=ctx)
        for _ in range(3):
            with mx.autograd.record():
                loss = nd.sum(nd.square(net(x)))
            loss.backward()
            trainer.step(6)
        assert loss.context == ctx
        results.append([net(x).asnumpy(), loss.asnumpy()])
    for got, want in zip(*results, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


class _Scaled(mx.operator.CustomOp):
    def __init__(self, seen):
        self.seen = seen

    def forward(self, is_train, req, in_data, out_data, aux):
        self.seen.append(in_data[0].context)
        made = nd.array(in_data[0].asnumpy() * 2, ctx=in_data[0].context)
        self.assign(out_data[0], req[0], made + in_data[0])

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0] * 3)


SEEN = []


@mx.operator.register("scaled_on_device")
class _ScaledProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, in_shapes, in_dtypes):
        return _Scaled(SEEN)


@pytest.mark.parametrize("req", ["write", "add"])
def test_an_operator_written_in_python_gets_arrays_of_the_device(req, gpu):
    SEEN.clear()
    x = nd.array([1.0, 2.0, 3.0], ctx=gpu)
    x.attach_grad(req)
    x.grad[:] = 10
    with mx.autograd.record():
        y = nd.Custom(x, op_type="scaled_on_device")
    y.backward()
    np.testing.assert_array_equal(y.asnumpy(), [3, 6, 9])
    np.testing.assert_array_equal(x.grad.asnumpy(), 3.0 if req == "write" else 13.0)
    sym = mx.sym.Custom(mx.sym.Variable("x"), op_type="scaled_on_device")
    grad = nd.full((3,), 10.0, ctx=gpu)
    exe = sym.bind(gpu, {"x": x}, args_grad={"x": grad}, grad_req=req)
    exe.forward(is_train=True)
    exe.backward(nd.ones((3,), ctx=gpu))
    np.testing.assert_array_equal(exe.outputs[0].asnumpy(), [3, 6, 9])
    np.testing.assert_array_equal(grad.asnumpy(), 3.0 if req == "write" else 13.0)
    assert set(SEEN) == {gpu}


def operator_by_attributes(name):
    entry = mx.op.register(name).set_num_inputs(1).set_num_outputs(1)
    entry.set_attr("FInferShape", mx.op.ElemwiseShape(1, 1))
    return entry.set_attr("FInferType", mx.op.ElemwiseType(1, 1))


def doubles(seen):
    def compute(attrs, ctx, inputs, req, outputs):
        seen.append(getattr(inputs[0], "context", type(inputs[0])))
        outputs[0][:] = inputs[0] * 2

    return compute


def test_a_function_on_numpy_views_gets_copies_on_the_host(gpu):
    seen = []
    entry = operator_by_attributes("doubled_by_numpy")
    entry.set_attr("FCompute<cpu>", doubles(seen), views="numpy")
    out = nd.doubled_by_numpy(nd.array([1.0, 2.0], ctx=gpu))
    assert out.context == gpu
    np.testing.assert_array_equal(out.asnumpy(), [2, 4])
    assert seen == [np.ndarray]


def test_a_function_for_each_device(gpu):
    on_cpu, on_gpu = [], []
    entry = operator_by_attributes("doubled_on_each")
    entry.set_attr("FCompute<cpu>", doubles(on_cpu))
    x = nd.array([3.0, 2.0], ctx=gpu)
    np.testing.assert_array_equal(nd.doubled_on_each(x).asnumpy(), [6, 4])
    assert (on_cpu, on_gpu) == ([mx.cpu()], [])  # none for the device: copies on the host
    entry = operator_by_attributes("doubled_on_both")
    entry.set_attr("FCompute<cpu>", doubles(on_cpu)).set_attr("FCompute<gpu>", doubles(on_gpu))
    np.testing.assert_array_equal(nd.doubled_on_both(x).asnumpy(), [6, 4])
    nd.doubled_on_both(x[:1], out=x[1:])
    assert (on_cpu, on_gpu) == ([mx.cpu()], [gpu, gpu])
    np.testing.assert_array_equal(x.asnumpy(), [3, 6])

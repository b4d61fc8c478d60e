"""Executors: binding in all forms, running, monitors, plans, errors."""

import numpy as np
import pytest
from networks import arr, mlp, nd, rng, sym

import rsnet as mx
from rsnet.base import MXNetError

# ---- binding, running, training -----------------------------------------------------------------


def test_an_mlp_trains():
    centers = rng.standard_normal((3, 4)) * 3
    label = rng.integers(0, 3, 64)
    data = centers[label] + rng.standard_normal((64, 4)) * 0.3
    exe = mlp().simple_bind(mx.cpu(), data=(64, 4))
    for name, value in exe.arg_dict.items():
        if name.endswith("weight"):
            value[:] = rng.standard_normal(value.shape) * 0.3
    exe.arg_dict["data"][:] = data
    exe.arg_dict["softmax_label"][:] = label
    for _ in range(60):
        exe.forward(is_train=True)
        exe.backward()
        for name, value in exe.arg_dict.items():
            if name not in ("data", "softmax_label"):
                grad = exe.grad_dict[name]
                nd.sgd_update(value, grad, out=value, lr=0.1, rescale_grad=1 / 64)
    predicted = exe.forward()[0].asnumpy().argmax(axis=1)
    assert (predicted == label).mean() > 0.95


def test_forward_and_backward_are_right():
    a, b = sym.Variable("a"), sym.Variable("b")
    x, y = arr(2, 3), arr(2, 3)
    exe = (a * b + b).bind(
        mx.cpu(), {"a": x, "b": y}, {"a": nd.zeros((2, 3)), "b": nd.zeros((2, 3))}
    )
    out = exe.forward(is_train=True)[0]
    np.testing.assert_allclose(out.asnumpy(), x.asnumpy() * y.asnumpy() + y.asnumpy(), rtol=1e-6)
    head = arr(2, 3)
    exe.backward(head)
    np.testing.assert_allclose(exe.grad_dict["a"].asnumpy(), (head * y).asnumpy(), rtol=1e-6)
    np.testing.assert_allclose(exe.grad_dict["b"].asnumpy(), (head * (x + 1)).asnumpy(), rtol=1e-5)


def test_outputs_are_the_same_arrays_on_every_forward():
    exe = (sym.Variable("x") + 1).simple_bind(mx.cpu(), x=(3,))
    first = exe.forward(x=nd.zeros((3,)))[0]
    exe.forward(x=nd.ones((3,)))
    assert first.asnumpy().tolist() == [2, 2, 2]
    assert exe.outputs[0].asnumpy().tolist() == [2, 2, 2]
    assert exe.output_dict[exe._output_names[0]].asnumpy().tolist() == [2, 2, 2]


def test_outputs_before_the_first_forward_are_zeros():
    nd.full((1000,), 7).wait_to_read()  # its bytes go back to the pool
    x = sym.Variable("x")
    exe = mx.sym.Group([x * 2, x]).simple_bind(mx.cpu(), x=(1000,))
    exe.arg_dict["x"][:] = 3
    assert exe.outputs[0].asnumpy().tolist() == [0] * 1000
    assert exe.outputs[1].asnumpy().tolist() == [3] * 1000
    exe.forward()
    assert exe.outputs[0].asnumpy().tolist() == [6] * 1000


def test_a_variable_is_its_own_output():
    x = arr(3)
    exe = sym.Variable("x").bind(mx.cpu(), [x])
    np.testing.assert_array_equal(exe.forward()[0].asnumpy(), x.asnumpy())


def test_eval():
    a, b = sym.Variable("a"), sym.Variable("b")
    assert (a + b).eval(a=nd.ones((2,)), b=nd.ones((2,)))[0].asnumpy().tolist() == [2, 2]


# ---- requests and head gradients ---------------------------------------------------------------


@pytest.mark.parametrize("form", ["str", "list", "dict"])
def test_grad_req_forms(form):
    a, b = sym.Variable("a"), sym.Variable("b")
    req = {"str": "add", "list": ["add", "add"], "dict": {"a": "add", "b": "add"}}[form]
    exe = (a * b).simple_bind(mx.cpu(), grad_req=req, a=(2,), b=(2,))
    exe.arg_dict["a"][:] = 3
    exe.arg_dict["b"][:] = 5
    for _ in range(3):
        exe.forward(is_train=True)
        exe.backward(nd.ones((2,)))
    assert exe.grad_dict["a"].asnumpy().tolist() == [15, 15]
    assert exe.grad_dict["b"].asnumpy().tolist() == [9, 9]


def test_grad_req_null_has_no_gradient():
    a, b = sym.Variable("a"), sym.Variable("b")
    exe = (a * b).simple_bind(mx.cpu(), grad_req={"a": "write"}, a=(2,), b=(2,))
    assert exe.grad_dict["b"] is None
    exe.forward(is_train=True)
    exe.backward([nd.ones((2,))])


def test_head_gradients_in_all_forms():
    a = sym.Variable("a")
    net = sym.Group([sym.BlockGrad(a), (a * 2), (a * 3)])
    exe = net.simple_bind(mx.cpu(), a=(2,))
    one = nd.ones((2,))
    for heads in ([None, one, one], dict(zip(net.list_outputs(), [one, one, one], strict=True))):
        exe.forward(is_train=True)
        exe.backward(heads)
        assert exe.grad_dict["a"].asnumpy().tolist() == [5, 5]


@pytest.mark.parametrize(
    ("heads", "text"),
    [
        (None, "backward\\(\\) needs a gradient of output 0"),
        ([nd.ones((3,))], "shape"),
        ([nd.ones((2,)), nd.ones((2,))], "head gradients .2.: expected at most 1"),
        ({"nothing": nd.ones((2,))}, "nothing"),
        ([3], "NDArray"),
    ],
)
def test_bad_head_gradients(heads, text):
    exe = (sym.Variable("a") * 2).simple_bind(mx.cpu(), a=(2,))
    exe.forward(is_train=True)
    with pytest.raises((MXNetError, ValueError, TypeError), match=text):
        exe.backward(heads)
    exe.backward(nd.ones((2,)))
    assert exe.grad_dict["a"].asnumpy().tolist() == [2, 2]
    exe.backward(nd.full((2,), 3, dtype="float64"))
    assert exe.grad_dict["a"].asnumpy().tolist() == [6, 6]


def test_backward_needs_a_whole_forward_pass():
    net = sym.tanh(sym.square(sym.Variable("a")))
    exe = net.simple_bind(mx.cpu(), a=(2,))
    exe.arg_dict["a"][:] = 1
    assert exe.partial_forward(True, 0) == 1
    with pytest.raises(MXNetError, match="ran 1 of 2 steps"):
        exe.backward(nd.ones((2,)))
    assert exe.partial_forward(True, 1) == 0
    with pytest.raises(MXNetError, match="invalid step .1.: expected 0, the next one"):
        exe.partial_forward(True, 1)
    exe.backward(nd.ones((2,)))
    expected = 2 * (1 - np.tanh(1.0) ** 2)
    np.testing.assert_allclose(exe.grad_dict["a"].asnumpy(), [expected] * 2, rtol=1e-5)


def test_backward_needs_forward_and_gradients():
    exe = (sym.Variable("a") * 2).simple_bind(mx.cpu(), a=(2,))
    with pytest.raises(MXNetError, match="forward"):
        exe.backward(nd.ones((2,)))
    (sym.Variable("a") * 2).simple_bind(mx.cpu(), grad_req="null", a=(2,)).backward()


# ---- binding -----------------------------------------------------------------------------------


def test_bind_by_list_and_dict():
    a, b = sym.Variable("a"), sym.Variable("b")
    x, y = arr(2), arr(2)
    for args in ([x, y], {"b": y, "a": x, "extra": x}):
        exe = (a - b).bind(mx.cpu(), args)
        np.testing.assert_allclose(exe.forward()[0].asnumpy(), (x - y).asnumpy())


def test_duplicate_names_bind_by_position():
    net = sym.Variable("x") - sym.Variable("x")
    x, y = arr(2), arr(2)
    exe = net.bind(mx.cpu(), [x, y], args_grad=[nd.zeros((2,)), nd.zeros((2,))])
    np.testing.assert_allclose(exe.forward(is_train=True)[0].asnumpy(), (x - y).asnumpy())
    exe.backward(nd.ones((2,)))
    assert exe.grad_arrays[0].asnumpy().tolist() == [1, 1]
    assert exe.grad_arrays[1].asnumpy().tolist() == [-1, -1]
    with pytest.raises(ValueError, match="[Dd]uplicate"):
        _ = exe.arg_dict
    np.testing.assert_allclose(net.bind(mx.cpu(), {"x": x}).forward()[0].asnumpy(), [0, 0])


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda n, a: n.bind(["cpu"], [a, a]), TypeError, "Context"),
        (lambda n, a: n.bind(mx.cpu(), [a]), ValueError, "invalid length of args 1"),
        (lambda n, a: n.bind(mx.cpu(), {"a": a}), ValueError, "expected a key 'b'"),
        (lambda n, a: n.bind(mx.cpu(), [a, 3]), TypeError, "NDArray"),
        (lambda n, a: n.bind(mx.cpu(), [a, nd.ones((3,))]), MXNetError, "shape|Incompatible"),
        (lambda n, a: n.bind(mx.cpu(), [a, a], [nd.ones((3,)), None]), MXNetError, "gradient of a"),
        (lambda n, a: n.bind(mx.cpu(), [a, a], [a, a], "wrong"), ValueError, "wrong"),
        (lambda n, a: n.bind(mx.cpu(1), [a, a]), MXNetError, "cpu"),
        (lambda n, a: n.bind(mx.cpu(), [a, a], shared_exec=3), TypeError, "shared_exec"),
        (lambda n, a: n.simple_bind(mx.cpu()), MXNetError, "give more shapes"),
        (lambda n, a: n.simple_bind(mx.cpu(), a=(2,), b=(3,)), MXNetError, "simple_bind error"),
        (lambda n, a: n.simple_bind(mx.cpu(), grad_req=[], a=(2,)), MXNetError, "invalid grad_req"),
        (
            lambda n, a: n.simple_bind(mx.cpu(), grad_req=["write"], a=(2,)),
            MXNetError,
            "invalid length of grad_req 1",
        ),
        (
            lambda n, a: n.simple_bind(mx.cpu(), memory_limit="x", a=(2,)),
            ValueError,
            "memory_limit",
        ),
    ],
)
def test_bad_binding(call, error, text):
    net = sym.Variable("a") + sym.Variable("b")
    with pytest.raises(error, match=text):
        call(net, nd.ones((2,)))


def test_type_dict():
    exe = mlp().simple_bind(mx.cpu(), type_dict={"data": "float64"}, data=(2, 4))
    assert exe.arg_dict["fc1_weight"].dtype == np.float64
    assert exe.forward()[0].dtype == np.float64


def test_groups_run_on_their_devices():
    with mx.AttrScope(ctx_group="one"):
        x = sym.Variable("x") * 2
    with mx.AttrScope(ctx_group="two"):
        net = x + sym.Variable("y")
    exe = net.simple_bind(mx.cpu(), group2ctx={"one": mx.cpu(0), "two": mx.cpu(1)}, x=(2,), y=(2,))
    assert exe.arg_dict["y"].context == mx.cpu(1)
    exe.arg_dict["x"][:] = 3
    exe.arg_dict["y"][:] = 1
    assert exe.forward(is_train=True)[0].asnumpy().tolist() == [7, 7]
    exe.backward(nd.ones((2,), ctx=mx.cpu(1)))
    assert exe.grad_dict["x"].asnumpy().tolist() == [2, 2]


# ---- forward's arguments -----------------------------------------------------------------------


def test_forward_takes_inputs():
    exe = (sym.Variable("x") * 2).simple_bind(mx.cpu(), x=(2,))
    assert exe.forward(x=np.array([1, 2]))[0].asnumpy().tolist() == [2, 4]
    assert exe.arg_dict["x"].asnumpy().tolist() == [1, 2]
    with pytest.raises(TypeError, match="unknown argument 'y'"):
        exe.forward(y=nd.ones((2,)))
    with pytest.raises(ValueError, match=r"argument .x. has shape \(3,\), expected \(2,\)"):
        exe.forward(x=nd.ones((3,)))


def test_copy_params_from():
    exe = mlp().simple_bind(mx.cpu(), data=(2, 4))
    exe.copy_params_from({"fc1_bias": nd.ones((8,), dtype="float64")})
    assert exe.arg_dict["fc1_bias"].asnumpy().sum() == 8
    with pytest.raises(ValueError, match="nothing"):
        exe.copy_params_from({"nothing": nd.ones((1,))})
    exe.copy_params_from({"nothing": nd.ones((1,))}, allow_extra_params=True)
    with pytest.raises(ValueError, match="shape"):
        exe.copy_params_from({"fc1_bias": nd.ones((9,))})


def test_reshape_shares_parameters():
    exe = mlp().simple_bind(mx.cpu(), data=(4, 4))
    exe.arg_dict["fc1_weight"][:] = arr(8, 4)
    exe.arg_dict["fc2_weight"][:] = arr(3, 8)
    data = arr(2, 4)
    small = exe.reshape(data=(2, 4), softmax_label=(2,))
    assert small.forward(data=data)[0].shape == (2, 3)
    exe.arg_dict["fc1_weight"][:] = 0
    assert small.arg_dict["fc1_weight"].asnumpy().sum() == 0
    with pytest.raises(ValueError, match="partial_shaping"):
        exe.reshape(data=(2, 4))
    with pytest.raises(ValueError, match="allow_up_sizing"):
        exe.reshape(data=(8, 4), softmax_label=(8,))
    big = exe.reshape(allow_up_sizing=True, data=(8, 4), softmax_label=(8,))
    assert big.forward()[0].shape == (8, 3)


# ---- plans -------------------------------------------------------------------------------------


def test_memory_plans_are_data(tmp_path):
    net = mlp()
    plan = net.memory_plan(data=(4, 6))
    assert plan.lower_bound_bytes <= plan.arena_bytes <= plan.no_sharing_bytes
    names = [e.name for e in plan.entries]
    assert names[:2] == ["data", "fc1_weight"]
    entry = plan.entries[names.index("relu1_output")]
    assert entry.inplace_of == "fc1_output" and entry.internal and entry.bytes == 4 * 8 * 4
    assert "relu1_output" in str(plan)
    plan.draw(str(tmp_path / "plan.svg"))
    plan.draw(str(tmp_path / "plan.png"))
    assert (tmp_path / "plan.svg").read_text().count("<rect") > 5
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="invalid path '.*gif': expected a name that ends with"):
        plan.draw(str(tmp_path / "plan.gif"))
    exe = net.simple_bind(mx.cpu(), data=(4, 6))
    assert exe.memory_plan().arena_bytes == plan.arena_bytes
    assert "MB allocated" in exe.debug_str()
    assert exe.get_optimized_symbol().list_outputs() == net.list_outputs()


def test_recomputation_gives_equal_gradients_in_less_memory():
    net = sym.Variable("x")
    for _ in range(20):
        net = sym.Activation(net * 1.1, act_type="tanh")
    full = net.memory_plan(x=(50, 40))
    limit = full.arena_bytes // 2
    data, found = arr(50, 40), []
    for kwargs in ({}, {"memory_limit": limit}):
        exe = net.simple_bind(mx.cpu(), x=(50, 40), **kwargs)
        exe.forward(is_train=True, x=data)
        exe.backward(nd.ones((50, 40)))
        found.append(exe.grad_dict["x"].asnumpy())
    assert exe.memory_plan().arena_bytes <= limit
    assert exe.memory_plan().recomputed_nodes > 0
    np.testing.assert_array_equal(found[0], found[1])
    with pytest.raises(MXNetError, match="the least"):
        net.memory_plan(memory_limit=10, x=(50, 40))


def test_a_node_computed_again_leaves_moving_averages_alone(monkeypatch):
    net = sym.Variable("x")
    for i in range(3):
        net = sym.BatchNorm(net, name=f"bn{i}", fix_gamma=False)
        net = sym.Activation(net, act_type="tanh")
        net = sym.FullyConnected(net, num_hidden=5, name=f"fc{i}")
    net = sym.MakeLoss(net)
    values = [np.random.default_rng(1).uniform(0, 1, s) for s in net.infer_shape(x=(8, 5))[0]]
    found = []
    for mirror in ("0", "1"):
        monkeypatch.setenv("MXNET_BACKWARD_DO_MIRROR", mirror)
        exe = net.simple_bind(mx.cpu(), x=(8, 5))
        for array, value in zip(exe.arg_arrays, values, strict=True):
            array[:] = value
        for _ in range(2):
            exe.forward(is_train=True)
            exe.backward()
        arrays = [*exe.grad_arrays, *exe.aux_arrays]
        found.append([a.asnumpy() for a in arrays])
    assert exe.memory_plan().recomputed_nodes > 0
    for plain, mirrored in zip(*found, strict=True):
        np.testing.assert_allclose(mirrored, plain, rtol=1e-4, atol=1e-6)


def test_static_graphs_are_data():
    graph = (sym.Variable("a") * sym.Variable("b")).graph()
    assert [n.op for n in graph.nodes] == ["null", "null", "elemwise_mul"]
    assert graph.arg_nodes == [0, 1] and graph.heads == [(2, 0)]
    assert graph.topo_sort() == graph.post_dfs_order(graph.heads) == [0, 1, 2]
    backward, heads, grads, mirror = graph.make_backward_pass()
    assert backward.nodes[heads[0]].op == "null"
    assert all(backward.nodes[node].backward_source == 2 for node, _ in grads)
    assert mirror == {}
    assert graph.to_symbol().list_arguments() == ["a", "b"]


def test_gradient_as_a_symbol():
    a, b = sym.Variable("a"), sym.Variable("b")
    grad = (a * b).grad(["a"])
    x, head = arr(3), arr(3)
    values = {"a": arr(3), "b": x, "_head_grad_0": head}
    assert set(grad.list_arguments()) <= set(values)
    np.testing.assert_allclose(grad.eval(**values)[0].asnumpy(), (x * head).asnumpy(), rtol=1e-6)
    with pytest.raises(KeyError, match="nothing"):
        (a * b).grad(["nothing"])


def test_wrong_kinds_of_steps_and_groups():
    s = mx.sym.relu(mx.sym.Variable("x"))
    exe = s.simple_bind(mx.cpu(), x=(1,))
    for step in ("x", 0.5, None):
        with pytest.raises(TypeError, match="invalid step .*: expected an integer"):
            exe.partial_forward(True, step)
    assert exe.partial_forward(True, np.int64(0)) == 0
    for call in (
        lambda **how: s.simple_bind(mx.cpu(), x=(1,), **how),
        lambda **how: s.bind(mx.cpu(), [mx.nd.ones((1,))], **how),
        lambda **how: s.memory_plan(x=(1,), **how),
    ):
        with pytest.raises(TypeError, match="invalid group2ctx 5: expected a dict of names"):
            call(group2ctx=5)

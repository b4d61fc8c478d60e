"""The rows of a monitor: which there are, how they are named, in which order."""

import rsnet as mx

V = mx.sym.Variable


def net():
    out = mx.sym.FullyConnected(V("data"), num_hidden=4, name="fc1")
    out = mx.sym.Activation(out, act_type="relu", name="relu1")
    out = mx.sym.FullyConnected(out, num_hidden=3, name="fc2")
    return mx.sym.SoftmaxOutput(out, name="softmax")


def rows(symbol, monitor_all=False, pattern=".*", **shapes):
    exe = symbol.simple_bind(mx.cpu(), **shapes)
    monitor = mx.monitor.Monitor(1, pattern=pattern, monitor_all=monitor_all)
    monitor.install(exe)
    monitor.tic()
    exe.forward(is_train=True)
    exe.backward()
    return [name for _, name, _ in monitor.toc()]


ARGUMENTS = ["data", "fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias", "softmax_label"]


def test_gradients_are_named_by_node_and_argument():
    assert rows(net(), data=(2, 5)) == [
        "fc1_output", "relu1_output", "fc2_output", "softmax_output",
        "softmax_backward_data", "softmax_backward_label",
        "fc2_backward_data", "fc2_backward_weight", "fc2_backward_bias",
        "relu1_backward_output",
        "fc1_backward_data", "fc1_backward_weight", "fc1_backward_bias",
        *ARGUMENTS,
    ]  # fmt: skip


def test_inputs_are_shown_under_the_names_of_variables_and_of_inputs():
    found = rows(net(), monitor_all=True, data=(2, 5))
    assert found[: found.index("fc2_data")] == [
        "data", "fc1_data", "fc1_weight", "fc1_weight", "fc1_bias", "fc1_bias", "fc1_output",
        "relu1_data", "relu1_output",
    ]  # fmt: skip
    backward = found[found.index("softmax_backward_input0") :]
    assert backward[: backward.index("fc2_backward_data")] == [
        "softmax_backward_input0", "softmax_label", "softmax_backward_input1",
        "softmax_backward_data", "softmax_backward_label",
        "fc2_backward_input0", "fc2_backward_input1", "fc2_weight", "fc2_backward_input2",
    ]  # fmt: skip


def test_a_gradient_of_one_node_is_named_like_that_of_a_backward_operator():
    loss = mx.sym.MakeLoss(mx.sym._internal._mul_scalar(V("x"), scalar=2, name="twice"), name="l")
    assert rows(loss, pattern=".*_backward_.*", x=(2,)) == [
        "l_backward_output", "twice_backward_output",
    ]  # fmt: skip


def test_plans_and_symbols_of_gradients_have_the_same_names():
    plan = net().memory_plan(data=(2, 5))
    assert "fc1_backward_weight" in [entry.name for entry in plan.entries]
    grads = net().grad(["fc1_weight", "fc2_bias"])
    assert grads.list_outputs() == ["fc1_backward_weight", "fc2_backward_bias"]

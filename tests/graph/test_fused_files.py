"""Files with fused and quantised nodes: each becomes the plain nodes that it stands for."""

import json

import numpy as np
import pytest

import rsnet as mx

sym, nd = mx.sym, mx.nd

RANGE = (-3.0, 3.0)


ATTENTION = "_contrib_interleaved_matmul_"

#: Fused operators, by the plain one that they begin with.
FUSED = {
    "Convolution": "_sg_mkldnn_conv",
    "FullyConnected": "_sg_mkldnn_fully_connected",
    f"{ATTENTION}selfatt_qk": "_sg_mkldnn_selfatt_qk",
    f"{ATTENTION}selfatt_valatt": "_sg_mkldnn_selfatt_valatt",
}


def fused(body, name, inputs, **params):
    """The JSON node of a fused operator whose body is a symbol."""
    graph = json.loads(body.tojson())
    graph.pop("attrs")
    op = next(FUSED[n["op"]] for n in graph["nodes"] if n["op"] in FUSED)
    text = {key: str(value) for key, value in params.items()}
    return {"op": op, "name": name, "inputs": inputs, "attrs": text,
            "subgraphs": [graph]}  # fmt: skip


def file_of(names, *nodes, heads=None):
    """A symbol of variables and nodes."""
    variables = [{"op": "null", "name": name, "inputs": []} for name in names]
    everything = [*variables, *nodes]
    heads = heads or [[len(everything) - 1, 0, 0]]
    return json.dumps({"nodes": everything, "arg_nodes": list(range(len(names))), "heads": heads,
                       "attrs": {"mxnet_version": ["int", 10901]}})  # fmt: skip


def conv_body(no_bias=False, axes=2):
    net = sym.Convolution(sym.Variable("data0"), kernel=(3,) * axes, pad=(1,) * axes, num_filter=4,
                          no_bias=no_bias, name="conv")  # fmt: skip
    net = sym.BatchNorm(net, fix_gamma=False, name="bn")
    return sym.Activation(net + sym.Variable("sum0"), act_type="relu", name="relu")


def values_of(net, **shapes):
    rng = np.random.RandomState(1)
    args, _, auxs = net.infer_shape(**shapes)
    args = dict(zip(net.list_arguments(), args, strict=True))
    auxs = dict(zip(net.list_auxiliary_states(), auxs, strict=True))
    return {
        n: nd.array(
            rng.uniform(0.1, 1, s) * rng.choice([1, 1, -1], s)
            if "var" not in n
            else rng.uniform(0.5, 1, s)
        )
        for n, s in {**args, **auxs}.items()
    }


def order(net):
    """Variables as a fused node of the body takes them."""
    return [n["name"] for n in json.loads(net.tojson())["nodes"] if n["op"] == "null"]


@pytest.mark.parametrize("no_bias", [False, True])
def test_fused_convolutions_are_their_plain_nodes(no_bias):
    body = conv_body(no_bias)
    names = order(body)
    node = fused(body, "sg_conv_0", [[i, 0, 0] for i in range(len(names))], with_bn="true")
    net = sym.load_json(file_of(names, node))
    assert net.list_outputs() == ["sg_conv_0_output"]
    assert net.list_auxiliary_states() == ["bn_moving_mean", "bn_moving_var"]
    values = values_of(body, data0=(2, 3, 5, 5))
    want, got = (s.eval(**values)[0].asnumpy() for s in (body, net))
    np.testing.assert_array_equal(got, want)
    again = sym.load_json(net.tojson())
    assert again.tojson() == net.tojson()
    np.testing.assert_array_equal(again.eval(**values)[0].asnumpy(), want)


def quantize(name, source):
    params = {"min_calib_range": str(RANGE[0]), "max_calib_range": str(RANGE[1])}
    inputs = [[source, 0, 0]]
    return {"op": "_contrib_quantize_v2", "name": name, "inputs": inputs, "attrs": params}


@pytest.mark.parametrize("float_output", [False, True])
@pytest.mark.parametrize(("no_bias", "axes"), [(False, 1), (False, 2), (True, 2), (False, 3)])
def test_quantised_convolutions_compute_on_integers(no_bias, float_output, axes):
    body = conv_body(no_bias, axes)
    names = order(body)
    n = len(names)
    data, total = names.index("data0"), names.index("sum0")
    inside = (5,) * axes
    values = values_of(body, data0=(2, 3, *inside))
    want = body.eval(**values)[0].asnumpy()
    inputs = [[i, 0, 0] for i in range(n)]
    inputs[data], inputs[total] = [n, 0, 0], [n + 1, 0, 0]
    inputs += [[n, 1, 0], [n, 2, 0], [n + 1, 1, 0], [n + 1, 2, 0]]
    params = {"quantized": "true", "with_sum": "true", "with_bn": "true"}
    params |= {"enable_float_output": "true"} if float_output else {
        "min_calib_range": 0.0, "max_calib_range": max(8.0, float(want.max()))}  # fmt: skip
    node = fused(body, "q_conv", inputs, **params)
    nodes = [quantize("q_data", data), quantize("q_sum", total), node]
    if not float_output:
        ends = [[n + 2, k, 0] for k in range(3)]
        nodes.append({"op": "_contrib_dequantize", "name": "real", "inputs": ends})
    net = sym.load_json(file_of(names, *nodes))
    assert "conv_output" in net.get_internals().list_outputs()
    # Shapes follow from the data's alone, that of the bias too.
    shapes = {"data0": (2, 3, *inside), "sum0": (2, 4, *inside)}
    exe = net.simple_bind(ctx=mx.cpu(), grad_req="null", **shapes)
    exe.copy_params_from({k: v for k, v in values.items() if k in exe.arg_dict},
                         {k: v for k, v in values.items() if k in exe.aux_dict})  # fmt: skip
    got = exe.forward(is_train=False)[0].asnumpy()
    assert 0 < np.abs(got - want).max() < 0.2
    assert np.abs(want).max() > 2
    if not float_output:
        internals = net.get_internals()
        assert internals["q_conv_output0"].infer_type()[1] == [np.uint8]


def test_quantised_fully_connected_takes_integer_weights():
    rng = np.random.RandomState(0)
    body = sym.FullyConnected(sym.Variable("d"), num_hidden=3, name="fc")
    names = ["data", "w", "b", "w_min", "w_max", "b_min", "b_max"]
    inputs = [[7, 0, 0], [1, 0, 0], [2, 0, 0], [7, 1, 0], [7, 2, 0]]
    inputs += [[i, 0, 0] for i in (3, 4, 5, 6)]
    node = fused(body, "q_fc", inputs, quantized="True", enable_float_output="True")
    net = sym.load_json(file_of(names, quantize("q", 0), node))
    x, w, b = rng.uniform(-3, 3, (4, 9)), rng.uniform(-1, 1, (3, 9)), rng.uniform(-2, 2, 3)
    whole = {"w": np.rint(w * 127), "b": np.rint(b / 2 * 127)}
    args = {k: nd.array(v, dtype="int8") for k, v in whole.items()} | {"data": nd.array(x)}
    args |= {"w_min": nd.array([-1]), "w_max": nd.array([1]), "b_min": nd.array([-2]),
             "b_max": nd.array([2])}  # fmt: skip
    got = net.eval(**args)[0].asnumpy()
    steps = np.rint(x / 3 * 127) * 3 / 127
    want = steps @ (whole["w"] / 127).T + whole["b"] * 2 / 127
    np.testing.assert_allclose(got, want, atol=1e-4)


def attention(*inputs, **params):
    """The nodes of both products of self-attention, and the same as a symbol of plain nodes."""
    sources = [sym.Variable(name) for name in ("q", "v", "weights")]
    first = sym.contrib.interleaved_matmul_selfatt_qk(sources[0], heads=2, name="qk")
    second = sym.contrib.interleaved_matmul_selfatt_valatt(*sources[1:], heads=2, name="va")
    plain = second(weights=sym.softmax(first))
    nodes = fused(first, "f_qk", inputs[0], **params), fused(second, "f_va", inputs[1], **params)
    return nodes, plain


def attention_values():
    rng = np.random.RandomState(2)
    return {name: nd.array(rng.uniform(-2, 2, (3, 2, 24))) for name in ("q", "v")}


def test_fused_attention_is_its_plain_nodes():
    (first, second), plain = attention([[0, 0, 0]], [[1, 0, 0], [3, 0, 0]], quantized="False")
    soft = {"op": "softmax", "name": "soft", "inputs": [[2, 0, 0]]}
    net = sym.load_json(file_of(["q", "v"], first, soft, second))
    assert {"f_qk_output", "f_va_output"} < set(net.get_internals().list_outputs())
    want, got = (s.eval(**attention_values())[0].asnumpy() for s in (plain, net))
    np.testing.assert_array_equal(got, want)


def test_quantised_attention_takes_and_gives_integers():
    # Variables 0 and 1, their integers 2 and 3, the first product 4, its softmax 5 and 6.
    first = [[2, 0, 0], [2, 1, 0], [2, 2, 0]]
    second = [[3, 0, 0], [6, 0, 0], [3, 1, 0], [3, 2, 0], [6, 1, 0], [6, 2, 0]]
    (first, second), plain = attention(first, second, quantized="True")
    first["attrs"]["enable_float_output"] = "True"
    second["attrs"] |= {"min_calib_range": "-2", "max_calib_range": "2"}
    soft = {"op": "softmax", "name": "soft", "inputs": [[4, 0, 0]]}
    nodes = [quantize("iq", 0), quantize("iv", 1), first, soft, quantize("is", 5), second]
    nodes.append({"op": "_contrib_dequantize", "name": "real",
                  "inputs": [[7, k, 0] for k in range(3)]})  # fmt: skip
    net = sym.load_json(file_of(["q", "v"], *nodes))
    assert net.get_internals()["f_va_output0"].infer_type()[1] == [np.int8]
    want, got = (s.eval(**attention_values())[0].asnumpy() for s in (plain, net))
    assert 0 < np.abs(got - want).max() < 0.1
    assert np.abs(want).max() > 1


@pytest.mark.parametrize("calibrated", [False, True])
def test_sums_without_a_range_are_quantised_by_the_node_behind_them(calibrated):
    body = sym.relu(sym.FullyConnected(sym.Variable("d"), num_hidden=3, no_bias=True, name="fc"))
    node = fused(body, "q_fc", [[2, 0, 0], [1, 0, 0], [2, 1, 0], [2, 2, 0]], quantized="True")
    again = {"op": "_contrib_requantize", "name": "again", "inputs": [[3, k, 0] for k in range(3)],
             "attrs": {"out_type": "int8"}}  # fmt: skip
    if calibrated:
        again["attrs"] |= {"min_calib_range": "-4", "max_calib_range": "4"}
    net = sym.load_json(file_of(["d", "w"], quantize("q", 0), node, again,
                                heads=[[4, k, 0] for k in range(3)]))  # fmt: skip
    rng = np.random.RandomState(3)
    values = {"d": nd.array(rng.uniform(-3, 3, (4, 9))), "w": nd.array(rng.normal(size=(3, 9)))}
    want = np.maximum(values["d"].asnumpy() @ values["w"].asnumpy().T, 0)
    q, _, high = (v.asnumpy() for v in net.eval(ctx=mx.cpu(), **values))
    assert q.dtype == np.int8
    assert high == 4 if calibrated else abs(high - want.max()) < 0.2
    np.testing.assert_allclose(q * high / 127, want.clip(None, high), atol=0.2)


def test_bad_subgraphs_are_clear_errors():
    body = conv_body()
    names = order(body)
    good = fused(body, "f", [[i, 0, 0] for i in range(len(names))])

    def refused(match, kind=mx.base.MXNetError, **changes):
        node = {**json.loads(json.dumps(good)), **changes}
        with pytest.raises(kind, match=match):
            sym.load_json(file_of(names, node))

    graph = good["subgraphs"][0]
    refused("number of subgraphs '1': expected 2", op="_while_loop")
    refused("several subgraphs", subgraphs=[graph, graph])
    refused("'f': invalid nodes of its subgraph: expected at most 1 variables", inputs=[[0, 0, 0]])
    refused("invalid heads of its subgraph", subgraphs=[{**graph, "heads": []}])
    refused("invalid heads of its subgraph", subgraphs=[{**graph, "heads": [[0, 0, 0]]}])
    refused(
        "subgraph 0 of node 8 'f': node 0: invalid node", subgraphs=[{**graph, "nodes": [good]}]
    )
    refused("subgraph 0 of node 8 'f'", subgraphs=[{"nodes": 3, "heads": []}])
    backwards = {"nodes": graph["nodes"][::-1], "heads": [[0, 0, 0]]}
    refused("invalid|inputs before", subgraphs=[backwards])
    refused("stands for the graph inside", subgraphs=[], op="_sg_mkldnn_selfatt_qk")

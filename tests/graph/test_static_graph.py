"""The static graph: orders, backward pass, JSON with backward nodes, symbols of gradients."""

import json

import numpy as np
import pytest
from networks import mlp

import rsnet as mx
from rsnet.base import MXNetError
from rsnet.symbol.graph import StaticGraph

sym = mx.sym
V = sym.Variable


def many_terms():
    """The gradients of `w` from ten nodes meet."""
    w = V("a") + V("b")
    return sym.Group([sym.sin(w * k) for k in range(1, 11)])


def mirrored():
    with mx.AttrScope(force_mirroring="True"):
        net = sym.exp(sym.exp(V("x"), name="e1"), name="e2")
    return sym.square(net, name="top")


def names_of(graph, ids):
    return [graph.nodes[i].name for i in ids]


# ---- orders ------------------------------------------------------------------------------------


def test_heads_are_node_numbers_or_entries():
    graph = mlp().graph()
    fc1 = names_of(graph, range(len(graph.nodes))).index("fc1")
    assert graph.post_dfs_order([fc1]) == graph.post_dfs_order([(fc1, 0)]) == [0, 1, 2, 3]
    assert graph.post_dfs_order([np.int64(fc1), (0, 0)]) == [0, 1, 2, 3]
    assert graph.post_dfs_order([]) == []


@pytest.mark.parametrize("head", [99, -1, (99, 0), (-1, 0)])
def test_unknown_nodes_are_named(head):
    with pytest.raises(MXNetError, match="invalid node .*: expected 0 to"):
        mlp().graph().post_dfs_order([head])


@pytest.mark.parametrize("head", ["fc1", 1.0, (1, 2, 3), None, True])
def test_heads_of_other_types_are_refused(head):
    with pytest.raises(TypeError, match="invalid head"):
        mlp().graph().post_dfs_order([head])


def test_a_backward_source_is_visited_as_the_last_input():
    graph, head_grads, _, _ = sym.exp(V("x"), name="e").graph().make_backward_pass()
    backward = next(i for i, n in enumerate(graph.nodes) if n.backward_source is not None)
    node = graph.nodes[backward]
    assert node.sources[-1] == node.backward_source
    order = graph.post_dfs_order([backward])
    assert order[-1] == backward and set(order) == set(range(len(graph.nodes)))
    # Without inputs that lead there, only the link does.
    lonely = json.loads(graph.to_json())
    lonely["nodes"][backward]["inputs"] = [[head_grads[0], 0, 0]] * len(node.inputs)
    lonely["nodes"][backward].pop("control_deps")
    again = StaticGraph.from_json(json.dumps(lonely))
    found = names_of(again, again.post_dfs_order([backward]))
    assert found == ["_head_grad_0", "x", "e", "e_backward"]


def test_topological_order_holds_every_node_once_after_its_sources():
    graph, *_ = many_terms().graph().make_backward_pass()
    order = graph.topo_sort()
    assert sorted(order) == list(range(len(graph.nodes)))
    place = {node: i for i, node in enumerate(order)}
    assert all(place[s] < place[i] for i in order for s in graph.nodes[i].sources)


# ---- backward pass -----------------------------------------------------------------------------


def test_sums_of_many_gradients_are_in_place_and_seen_on_the_nodes():
    graph, _, arg_grads, _ = many_terms().graph().make_backward_pass()
    adding = [node for node in graph.nodes if node.addto]
    assert len(adding) == 9
    assert all(output == 0 for node in adding for output, _ in node.addto)
    assert arg_grads[0] is not None


def test_head_gradients_come_after_the_copies():
    graph, head_grads, arg_grads, mirror = mirrored().graph().make_backward_pass()
    assert names_of(graph, mirror) == ["e1", "e2"]
    assert names_of(graph, mirror.values()) == ["e1_mirror", "e2_mirror"]
    assert max(mirror.values()) < min(head_grads)
    assert arg_grads[0][0] > max(head_grads)
    for i, node in enumerate(graph.nodes):
        assert all(source < i for source in node.sources)


# ---- JSON --------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [mlp, many_terms, mirrored])
def test_graphs_with_backward_nodes_round_trip(make):
    symbol = make()
    forward = symbol.graph()
    graph, *_ = forward.make_backward_pass()
    again = StaticGraph.from_json(graph.to_json())
    assert again.nodes == graph.nodes
    assert again.heads == graph.heads and again.arg_nodes == graph.arg_nodes
    assert again.to_json() == graph.to_json()
    assert StaticGraph.from_json(forward.to_json()).nodes == forward.nodes
    assert forward.to_json() == symbol.tojson()


def node_of_0_8(op, name, inputs, source=-1, **param):
    return {
        "op": op, "param": param, "name": name, "inputs": inputs, "backward_source_id": source,
    }  # fmt: skip


def gradient_of_0_8():
    """0.8's file of the gradients of an exp(fc): [weight, data]; `exp` here has another rule."""
    nodes = [
        node_of_0_8("null", "data", []),
        node_of_0_8("null", "w", []),
        node_of_0_8("FullyConnected", "fc", [[0, 0], [1, 0]], num_hidden="2", no_bias="True"),
        node_of_0_8("exp", "e", [[2, 0]]),
        node_of_0_8("null", "e_0_grad", []),
        node_of_0_8("null", "e_backward", [[4, 0], [3, 0]], 3),
        node_of_0_8("null", "fc_backward", [[5, 0], [0, 0], [1, 0]], 2),
    ]
    return json.dumps({"nodes": nodes, "arg_nodes": [0, 1, 4], "heads": [[6, 1], [6, 0]]})


def test_backward_nodes_of_0_8_load_and_compute():
    net = sym.load_json(gradient_of_0_8())
    assert net.list_outputs()[0].startswith("fc_backward")
    rng = np.random.default_rng(0)
    data, w, grad = rng.random((3, 4)), rng.random((2, 4)), rng.random((3, 2))
    arrays = {"data": data, "w": w, "e_0_grad": grad}
    got = net.eval(mx.cpu(), **{k: mx.nd.array(v) for k, v in arrays.items()})
    inner = grad * np.exp(data @ w.T)
    np.testing.assert_allclose(got[0].asnumpy(), inner.T @ data, rtol=1e-5)
    np.testing.assert_allclose(got[1].asnumpy(), inner @ w, rtol=1e-5)
    assert net.simple_bind(mx.cpu(), data=(3, 4)).arg_dict["e_0_grad"].shape == (3, 2)
    graph = StaticGraph.from_json(gradient_of_0_8())
    backward = {n.name: n for n in graph.nodes if n.backward_source is not None}
    assert graph.nodes[backward["fc_backward"].backward_source].name == "fc"


@pytest.mark.parametrize(
    ("at", "field", "value", "text"),
    [
        (5, "backward_source_id", 99, "node 5: invalid backward_source_id 99: expected"),
        (5, "backward_source_id", 0, "not the node of an operator"),
        (5, "backward_source_id", 5, "cycle"),
        (5, "backward_source_id", "x", "backward_source_id"),
        (5, "inputs", [[4, 0], [3, 0], [0, 0], [1, 0]], "'e': input 2 is the gradient of an out"),
        (5, "inputs", [[4, 0], [0, 0], [3, 0]], "'e': 2 of them are neither .* expected 1"),
        (6, "inputs", [[5, 0]], "'fc': 0 of them are inputs or outputs .* expected 2 or more"),
        (6, "inputs", [[5, 0], [0, 0]], "'fc': 1 of them are inputs or outputs"),
        (6, "inputs", [[0, 0], [1, 0]], "'fc': 0 of them are neither .* expected 1, a gradient"),
        (6, "inputs", [[0, 0], [5, 0], [1, 0]], "'fc': input 1 is the gradient of an output"),
        (6, "inputs", [[5, 0], [0, 0], [1, 0], [0, 0]], "input 3, 'data', is there more often"),
        (6, "inputs", [[5, 3]], "output 3 of 'e_backward': expected less than 1"),
        (3, "addto", [[0, [99, 0]]], "99"),
        (3, "addto", [[7, [2, 0]]], "invalid addto"),
        (3, "addto", 3, "invalid addto 3: expected an array"),
        (3, "mirror_source_id", 99, "node 3: invalid mirror_source_id 99: expected"),
    ],
)
def test_corrupt_links_are_errors(at, field, value, text):
    stored = json.loads(gradient_of_0_8())
    stored["nodes"][at][field] = value
    with pytest.raises(MXNetError, match=text):
        StaticGraph.from_json(json.dumps(stored))
    with pytest.raises(MXNetError, match=text):
        sym.load_json(json.dumps(stored))


# ---- symbols -----------------------------------------------------------------------------------


def test_a_symbol_says_what_it_drops():
    graph, *_ = mlp().graph().make_backward_pass()
    with pytest.warns(UserWarning, match=r"to_symbol drops \d+ nodes .*softmax_backward"):
        net = graph.to_symbol()
    assert net.tojson() == mlp().tojson()
    assert mlp().graph().to_symbol().tojson() == mlp().tojson()


def test_sums_in_place_become_additions_of_a_symbol():
    graph, head_grads, arg_grads, _ = many_terms().graph().make_backward_pass()
    stored = json.loads(graph.to_json())
    stored["heads"] = [[*arg_grads[0], 0]]
    whole = StaticGraph.from_json(json.dumps(stored))
    with pytest.warns(UserWarning, match="9 sums in place, which become additions"):
        net = whole.to_symbol()
    arrays = {"a": mx.nd.array([0.5]), "b": mx.nd.array([0.25])}
    arrays |= {graph.nodes[i].name: mx.nd.ones(1) for i in head_grads}
    expected = sum(k * np.cos(0.75 * k) for k in range(1, 11))
    for symbol in (net, sym.load_json(json.dumps(stored))):
        got = symbol.eval(mx.cpu(), **arrays)[0].asscalar()
        assert got == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_bind_without_the_shape_of_the_head_gradient(dtype):
    net = sym.FullyConnected(V("data"), num_hidden=2, no_bias=True, name="fc") + 1
    grads = net.grad(["fc_weight", "data"])
    exe = grads.simple_bind(mx.cpu(), "null", {"data": dtype}, data=(3, 4))
    head = exe.arg_dict["_head_grad_0"]
    assert head.shape == (3, 2) and head.dtype == np.dtype(dtype)
    exe.arg_dict["data"][:] = 2
    exe.arg_dict["fc_weight"][:] = 3
    head[:] = 1
    weight, data = exe.forward()
    assert weight.asnumpy().tolist() == [[6] * 4] * 2
    assert data.asnumpy().tolist() == [[6] * 4] * 3


def test_a_gradient_that_is_the_head_gradient_itself_has_its_shape():
    exe = (V("a") + V("b")).grad(["b"]).simple_bind(mx.cpu(), a=(2, 3), b=(2, 3))
    assert exe.arg_dict["_head_grad_0"].shape == (2, 3)


def test_positions_of_a_composition_go_depth_first_from_the_last_input():
    v1, v2, v3, a, b, c = (V(n) for n in ("v1", "v2", "v3", "a", "b", "c"))
    assert (v1 - sym.exp(v2))(a, b).list_arguments() == ["b", "a"]
    assert ((v1 - v2) - sym.exp(v3))(a, b, c).list_arguments() == ["c", "b", "a"]
    shared = (v1 - v2) + v1
    assert shared(a, b).list_arguments() == ["a", "b"]
    assert (v1 - sym.exp(v2))(v1=a, v2=b).list_arguments() == ["a", "b"]
    with pytest.raises(MXNetError, match="requires 2, provided 1"):
        shared(a)

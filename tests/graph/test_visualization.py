"""Tables and pictures of symbols."""

import sys
import types

import pytest

import rsnet as mx

V = mx.sym.Variable


def small():
    net = mx.sym.Convolution(V("data"), kernel=(3, 3), stride=(2, 2), num_filter=8, name="c")
    net = mx.sym.Activation(net, act_type="relu", name="r")
    net = mx.sym.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="max", name="p")
    net = mx.sym.FullyConnected(net, num_hidden=10, name="f")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def test_a_summary_lists_the_first_node_and_every_operator(capsys):
    mx.viz.print_summary(small(), shape={"data": (1, 3, 13, 13)}, line_length=80)
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in lines if line.strip("_=")]
    assert rows[0] == ["Layer", "(type)", "Output", "Shape", "Param", "#", "Previous", "Layer"]
    assert rows[1:] == [
        ["data(null)", "3x13x13", "0"],
        ["c(Convolution)", "8x6x6", str(8 * 27 + 8), "data"],
        ["r(Activation)", "8x6x6", "0", "c"],
        ["p(Pooling)", "8x3x3", "0", "r"],
        ["f(FullyConnected)", "10", str(72 * 10 + 10), "p"],
        ["softmax(SoftmaxOutput)", "10", "0", "f"],
        ["Total", "params:", str(8 * 27 + 8 + 730)],
    ]
    assert {line[0] for line in lines if not line.strip("_=")} == {"_", "="}


def test_further_inputs_stand_below_each_other(capsys):
    net = mx.sym.Concat(mx.sym.exp(V("a"), name="x"), mx.sym.log(V("a"), name="y"), name="both")
    mx.viz.print_summary(net, line_length=60)
    lines = capsys.readouterr().out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("both(Concat)"))
    assert lines[at].split()[-1] == "x" and lines[at + 1].split() == ["y"]


def test_a_summary_needs_shapes_that_determine_all():
    with (
        pytest.warns(UserWarning, match="c_weight"),
        pytest.raises(ValueError, match="incomplete"),
    ):
        mx.viz.print_summary(small(), shape={"softmax_label": (1,)})
    with pytest.raises(TypeError, match="Symbol"):
        mx.viz.print_summary("net")


@pytest.fixture
def drawn(monkeypatch):
    """A stand-in for graphviz, which is not needed otherwise."""
    nodes, edges = {}, {}

    class Digraph:
        def __init__(self, name, format):
            pass

        def node(self, name, **attrs):
            nodes[name] = attrs

        def edge(self, tail_name, head_name, **attrs):
            edges[tail_name, head_name] = attrs

    monkeypatch.setitem(sys.modules, "graphviz", types.SimpleNamespace(Digraph=Digraph))
    return nodes, edges


def test_a_picture_says_what_matters_of_each_operator(drawn):
    nodes, edges = drawn
    mx.viz.plot_network(small(), shape={"data": (1, 3, 13, 13)})
    assert {name: (n["label"], n["fillcolor"], n["shape"]) for name, n in nodes.items()} == {
        "data": ("data", "#8dd3c7", "oval"),
        "c": ("Convolution\n3x3/2x2, 8", "#fb8072", "box"),
        "r": ("Activation\nrelu", "#ffffb3", "box"),
        "p": ("Pooling\nmax, 2x2/2x2", "#80b1d3", "box"),
        "f": ("FullyConnected\n10", "#fb8072", "box"),
        "softmax_label": ("softmax_label", "#8dd3c7", "oval"),
        "softmax": ("softmax", "#b3de69", "box"),
    }
    assert edges["r", "c"]["label"] == "8x6x6" and edges["c", "data"]["dir"] == "back"
    assert set(edges) == {
        ("c", "data"), ("r", "c"), ("p", "r"), ("f", "p"), ("softmax", "f"), ("softmax", "softmax_label")
    }  # fmt: skip


def test_weights_are_drawn_when_asked_for(drawn):
    mx.viz.plot_network(small(), hide_weights=False)
    assert drawn[0]["c_weight"]["label"] == "c_weight"


def test_nodes_of_one_name_are_told(drawn):
    net = mx.sym.exp(V("a"), name="x") + mx.sym.exp(V("b"), name="x")
    with pytest.warns(RuntimeWarning, match="'x'"):
        mx.viz.plot_network(net)

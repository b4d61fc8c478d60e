"""Tables and pictures of symbols."""

import itertools
import sys
import types
from xml.etree import ElementTree

import pytest

import rsnet as mx
from rsnet import network_drawing

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


def test_without_shapes_what_is_known_counts(capsys):
    """A weight that depends on the input counts as 0, as in MXNet."""
    words = mx.sym.Embedding(V("data"), input_dim=10, output_dim=4, name="e")
    net = mx.sym.FullyConnected(words, num_hidden=8, name="f")
    mx.viz.print_summary(net, line_length=60)
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip("_=")]
    assert rows[2:] == [
        ["e(Embedding)", "40", "data"],
        ["f(FullyConnected)", "8", "e"],
        ["Total", "params:", "48"],
    ]


def test_a_summary_needs_shapes_that_determine_all():
    with pytest.raises(ValueError, match="expected those that determine the shape"):
        mx.viz.print_summary(small(), shape={"softmax_label": (1,)})
    with pytest.raises(TypeError, match="Symbol"):
        mx.viz.print_summary("net")


@pytest.fixture
def drawn(monkeypatch):
    """A stand-in for the package graphviz."""
    nodes, edges = {}, {}

    class Digraph:
        def __init__(self, name, format):
            self.format = format

        def node(self, name, **attrs):
            nodes[name] = attrs

        def edge(self, tail_name, head_name, **attrs):
            edges[tail_name, head_name] = attrs

    monkeypatch.setitem(sys.modules, "graphviz", types.SimpleNamespace(Digraph=Digraph))
    return nodes, edges


def test_a_picture_says_what_matters_of_each_operator(drawn):
    nodes, edges = drawn
    mx.viz.plot_network(small(), shape={"data": (1, 3, 13, 13)}).digraph()
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
        ("c", "data"), ("r", "c"), ("p", "r"), ("f", "p"), ("softmax", "f"),
        ("softmax", "softmax_label"),
    }  # fmt: skip


def test_weights_are_drawn_when_asked_for(drawn):
    mx.viz.plot_network(small(), hide_weights=False).digraph()
    assert drawn[0]["c_weight"]["label"] == "c_weight"


def test_what_programs_do_with_a_digraph_reaches_it(drawn):
    picture = mx.viz.plot_network(small(), save_format="pdf")
    assert picture.digraph() is picture.digraph() and picture.format == "pdf"
    picture.format = "png"
    picture.node("note", label="mine")
    assert picture.digraph().format == "png" and drawn[0]["note"] == {"label": "mine"}
    assert not hasattr(picture, "_repr_png_")


def test_nodes_of_one_name_give_a_warning():
    net = mx.sym.exp(V("a"), name="x") + mx.sym.exp(V("b"), name="x")
    with pytest.warns(RuntimeWarning, match="'x'"):
        mx.viz.plot_network(net)


# ---- pictures without other programs -----------------------------------------------------------


def svg_of(picture):
    """The root of the SVG that a notebook shows, parsed."""
    return ElementTree.fromstring(picture._repr_svg_())


def diamond(depth):
    """A chain with a skip connection around it."""
    x = net = mx.sym.exp(V("data"), name="first")
    for i in range(depth):
        net = mx.sym.relu(net, name=f"r{i}")
    return mx.sym.elemwise_add(net, x, name="sum")


def test_a_notebook_shows_the_network():
    picture = mx.viz.plot_network(small(), title="a < b", shape={"data": (1, 3, 13, 13)})
    root = svg_of(picture)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = [node.text for node in root.iter() if node.text]
    assert "a < b" in texts and "Convolution" in texts and "3x3/2x2, 8" in texts
    assert "8x6x6" in texts and "c: Convolution 3x3/2x2, 8" in texts
    assert "graphviz" not in sys.modules
    assert repr(picture) == "<Network 'a < b': 7 nodes, 6 edges>"


def test_a_picture_is_saved_as_svg(tmp_path):
    picture = mx.viz.plot_network(small())
    picture.save(str(tmp_path / "net.svg"))
    assert (tmp_path / "net.svg").read_text(encoding="utf-8") == picture._repr_svg_()
    with pytest.raises(ValueError, match=r"invalid path .*\.svg"):
        picture.save("net.pdf")


def test_inputs_lie_below_what_reads_them_and_no_nodes_overlap():
    both = mx.sym.Group([small()(data=V("image")), diamond(5)])
    picture = mx.viz.plot_network(both, hide_weights=False)
    placed = network_drawing.layout(picture.shapes, picture.edges)
    for edge, path in zip(picture.edges, placed.paths, strict=True):
        assert path[0] == placed.centres[edge.source]
        assert path[-1] == placed.centres[edge.target]
        assert all(low[1] > high[1] for low, high in itertools.pairwise(path))
    for a, b in itertools.combinations(placed.centres, 2):
        apart = abs(a[0] - b[0]) >= network_drawing.WIDTH or abs(a[1] - b[1]) > 0
        assert apart
    half = network_drawing.WIDTH / 2
    assert all(half <= x <= placed.width - half for x, _ in placed.centres)
    # The skip connection goes around the chain, not through it.
    long = max(placed.paths, key=len)
    chain = [placed.centres[i] for i, s in enumerate(picture.shapes) if s.name.startswith("r")]
    assert not {x for x, _ in long[1:-1]} & {x for x, _ in chain}


def test_odd_names_and_sizes_are_drawn():
    nothing = mx.viz.plot_network(V("a_weight"))
    assert svg_of(nothing).tag.endswith("svg")
    odd = mx.sym.exp(V("<&\"'>" * 20), name="x" * 500)
    assert "x" * 500 in mx.viz.plot_network(odd)._repr_svg_()
    assert svg_of(mx.viz.plot_network(odd)).tag.endswith("svg")
    assert svg_of(mx.viz.plot_network(diamond(300))).tag.endswith("svg")


def test_a_notebook_shows_a_memory_plan():
    plan = small().memory_plan(data=(1, 3, 13, 13))
    root = svg_of(plan)
    assert root.tag.endswith("svg") and any(t.text == "c_output" for t in root.iter())


def test_pictures_of_names_that_xml_cannot_hold_are_well_formed():
    net = mx.sym.exp(mx.sym.var("x\x01"), name="y\x1f<")
    plan = net.memory_plan(**{"x\x01": (2,)})
    for picture in (mx.viz.plot_network(net), plan):
        ElementTree.fromstring(picture._repr_svg_())

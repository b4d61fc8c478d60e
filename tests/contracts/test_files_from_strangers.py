"""Files from strangers: whatever their bytes, loading gives an error of rsnet's or something that
can be used.

`make fuzz` runs these with many thousands of examples, and others on every run.
"""

import json

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import rsnet as mx
from rsnet.base import MXNetError

nd, sym = mx.nd, mx.sym


def network():
    net = sym.Convolution(sym.Variable("data"), name="conv", num_filter=4, kernel=(3, 3))
    net = sym.BatchNorm(net, name="bn", fix_gamma=False)
    net = sym.Activation(net, name="relu", act_type="relu", attr={"ctx_group": "a"})
    left, right = sym.SliceChannel(net, name="halves", num_outputs=2)
    net = sym.Concat(left * 2, right, dim=1, name="both")
    net = sym.FullyConnected(net, name="fc", num_hidden=3)
    return sym.SoftmaxOutput(net, name="softmax")


GOOD = json.loads(network().tojson())
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 40), st.integers(), st.floats(), st.text(max_size=8),
    st.sampled_from(["(3, 3)", "(-1,)", "(0, 0)", "99999999999", "-1", "nan", "None", "Concat",
        "null"]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner)
)


def places(value, path=()):
    """The paths of all values in a JSON document."""
    yield path
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*path, key))


PLACES = list(places(GOOD))[1:]


@st.composite
def damaged_symbols(draw):
    """A good file with one to four values replaced, dropped or copied from elsewhere."""
    document = json.loads(json.dumps(GOOD))
    for _ in range(draw(st.integers(1, 4))):
        *path, last = draw(st.sampled_from(PLACES))
        try:
            target = document
            for key in path:
                target = target[key]
            if draw(st.booleans()):
                target[last] = draw(VALUES)
            else:
                del target[last]
        except (LookupError, TypeError):
            pass  # an earlier change removed the place
    text = json.dumps(document)
    cut = draw(st.none() | st.integers(0, len(text)))
    return text[:cut]


@pytest.mark.slow
@given(damaged_symbols())
@example("[" * 100_000)
@example('{"nodes": [], "arg_nodes": [], "heads": []}')
def test_symbols_from_strangers(text):
    try:
        net = sym.load_json(text)
    except MXNetError:
        return
    assert sym.load_json(net.tojson()).list_inputs() == net.list_inputs()
    net.debug_str()
    try:
        net.infer_shape_partial(data=(2, 3, 8, 8))
        net.memory_plan(data=(2, 3, 8, 8))
    except MXNetError:
        pass


@pytest.fixture(scope="module")
def parameters(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("good") / "x.params")
    nd.save(path, {"arg:w": nd.ones((2, 3)), "aux:m": nd.zeros((4,), dtype="int32")})
    with open(path, "rb") as file:
        return file.read()


EDITS = st.lists(
    st.tuples(st.integers(0, 400), st.binary(max_size=9), st.integers(0, 9)), min_size=1, max_size=4
)


@given(EDITS)
def test_parameters_from_strangers(parameters, edits):
    """Each edit replaces some bytes at a place by others."""
    data = parameters
    for at, new, dropped in edits:
        data = data[:at] + new + data[at + dropped :]
    try:
        loaded = nd.load_frombuffer(data)
    except MXNetError:
        return
    for array in loaded.values() if isinstance(loaded, dict) else loaded:
        assert array is None or array.asnumpy().nbytes <= len(data)


@given(EDITS)
def test_pickled_arrays_from_strangers(edits):
    rebuild, given, state = nd.array(np.arange(6).reshape(2, 3)).__reduce__()
    whole = rebuild(*given)
    whole.__setstate__(state)
    assert whole.shape == (2, 3)
    data = bytes(state["handle"])
    for at, new, dropped in edits:
        data = data[:at] + new + data[at + dropped :]
    array = rebuild(*given)
    try:
        array.__setstate__({"handle": bytearray(data)})
        array.asnumpy()
    except (MXNetError, TypeError):
        pass

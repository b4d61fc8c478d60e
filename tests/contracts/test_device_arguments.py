"""Devices: every function takes a Context or its text, and refuses the rest in one form."""

import re

import pytest

import rsnet as mx
from rsnet import gluon, nd

NET = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")


def initialized(ctx):
    net = gluon.nn.Dense(2, in_units=2)
    net.initialize(ctx=ctx)
    return net


# Where a device goes in, and the device of what comes out.
PLACES = {
    "zeros": lambda ctx: nd.zeros((2,), ctx=ctx).context,
    "array": lambda ctx: nd.array([1, 2], ctx=ctx).context,
    "uniform": lambda ctx: nd.random.uniform(shape=(2,), ctx=ctx).context,
    "as_in_context": lambda ctx: nd.ones((2,)).as_in_context(ctx).context,
    "copyto": lambda ctx: nd.ones((2,)).copyto(ctx).context,
    "simple_bind": lambda ctx: NET.simple_bind(ctx, data=(1, 2)).arg_arrays[0].context,
    "bind": lambda ctx: NET.bind(
        ctx, [nd.ones(s, ctx=ctx) for s in ((1, 2), (2, 2), (2,))]
    ).arg_arrays[0].context,
    "initialize": lambda ctx: initialized(ctx).weight.list_ctx()[0],
    "reset_ctx": lambda ctx: (
        [net := initialized("cpu"), net.collect_params().reset_ctx(ctx)][0].weight.list_ctx()[0]
    ),
    "split_and_load": lambda ctx: gluon.utils.split_and_load(nd.ones((2, 1)), [ctx])[0].context,
    "Module": lambda ctx: mx.mod.Module(NET, label_names=None, context=ctx)._context[0],
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_a_text_is_as_good_as_a_context(place):
    for ctx in (mx.cpu(1), "cpu(1)", "cpu:1"):
        assert PLACES[place](ctx) == mx.cpu(1)
    assert PLACES[place]("cpu") == mx.cpu(0)


@pytest.mark.parametrize("place", PLACES)
def test_anything_else_is_refused_in_one_form(place):
    with pytest.raises(
        TypeError, match="(ctx|context|copyto).* (expected a Context|NDArray or a Context)"
    ):
        PLACES[place](1.5)
    with pytest.raises(ValueError, match="invalid .*device type 'tpu': expected one of: cpu, gpu"):
        PLACES[place]("tpu")


@pytest.mark.parametrize("text", ["cpu(1)", "cpu:1"])
def test_a_context_of_a_text(text):
    assert mx.Context(text) == mx.cpu(1)
    with pytest.raises(ValueError, match=re.escape(f"expected none beside '{text}'")):
        mx.Context(text, 2)


@pytest.mark.parametrize("text", ["tpu", "cpu(x)", "cpu(1", "cpu:", ":1", "cpu(-1)", 3])
def test_other_texts_name_no_device(text):
    with pytest.raises(KeyError, match="invalid device type"):
        mx.Context(text)


def test_numbers_of_devices_are_numbers():
    with pytest.raises(ValueError, match="invalid device_id 'a': expected an int"):
        mx.cpu("a")

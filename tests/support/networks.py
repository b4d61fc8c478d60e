"""A small network and random arrays for tests of executors."""

import numpy as np

import rsnet as mx

sym, nd = mx.sym, mx.nd

rng = np.random.default_rng(0)


def arr(*shape):
    return nd.array(rng.standard_normal(shape))


def mlp(hidden=8, classes=3):
    net = sym.FullyConnected(sym.Variable("data"), name="fc1", num_hidden=hidden)
    net = sym.Activation(net, name="relu1", act_type="relu")
    net = sym.FullyConnected(net, name="fc2", num_hidden=classes)
    return sym.SoftmaxOutput(net, name="softmax")

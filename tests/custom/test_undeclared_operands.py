"""An operand that backward did not declare is an MXNetError in every use."""

import copy
import math
import operator
import pickle

import numpy as np
import pytest

import rsnet as mx
from rsnet import MXNetError, autograd, nd

USES = {
    "left": lambda a, x: x * a,
    "right": lambda a, x: a * x,
    "a sum": lambda a, x: a + x,
    "a number": lambda a, x: 2 - x,
    "matmul": lambda a, x: x @ x,
    "a power": lambda a, x: a**x,
    "in place": lambda a, x: operator.iadd(a, x),
    "negation": lambda a, x: -x,
    "a comparison": lambda a, x: a > x,
    "equality": lambda a, x: x == 1,
    "an element": lambda a, x: x[0],
    "assignment": lambda a, x: operator.setitem(x, 0, 1),
    "assigned from": lambda a, x: operator.setitem(a, slice(None), x),
    "length": lambda a, x: len(x),
    "a loop": lambda a, x: list(x),
    "a float": lambda a, x: float(x),
    "floor": lambda a, x: math.floor(x),
    "a method": lambda a, x: x.sum(),
    "asnumpy": lambda a, x: x.asnumpy(),
    "dtype": lambda a, x: x.dtype,
    "a function": lambda a, x: nd.dot(a, x),
    "a function of one": lambda a, x: nd.exp(x),
    "out": lambda a, x: nd.exp(a, out=x),
    "one of the outs": lambda a, x: nd.split(a, num_outputs=3, axis=0, out=[a[:1], x, a[2:]]),
    "copyto": lambda a, x: a.copyto(x),
    "NumPy": lambda a, x: np.asarray(x),
    "a NumPy function": lambda a, x: np.add(x, 1),
    "beside a NumPy array": lambda a, x: np.ones(3) * x,
    "dlpack": lambda a, x: np.from_dlpack(x),
    "text": lambda a, x: str(x),
    "a condition": lambda a, x: bool(x),
    "shape": lambda a, x: x.shape,
    "size": lambda a, x: x.size,
    "a copy": lambda a, x: copy.copy(x),
    "pickle": lambda a, x: pickle.dumps(x),
    "a file": lambda a, x: nd.save("never_written.params", [x]),
    "a key": lambda a, x: mx.kv.create().init("key", x),
    "a head": lambda a, x: autograd.backward([x]),
    "a variable": lambda a, x: autograd.grad([a], [x]),
}
_seen = {}


class Uses(mx.Operator):
    def forward(self, ctx, in_data, req, out_data, aux_states):
        self.assign(out_data[0], req[0], in_data[0])

    def backward(self, ctx, out_grad, in_data, out_data, req, in_grad, aux_states):
        for name, use in USES.items():
            try:
                _seen[name] = use(out_grad[0], in_data[0])
            except Exception as error:
                _seen[name] = error
        _seen["shown"] = repr(in_data[0])
        self.assign(in_grad[0], req[0], out_grad[0])


@mx.operator.register("t_undeclared")
class UsesProperty(mx.OperatorProperty):
    def infer_shape(self, in_shape):
        return in_shape, [in_shape[0]], []

    def declare_backward_dependency(self, out_grad, in_data, out_data):
        return [out_grad[0]]

    def create_operator(self, ctx):
        return Uses()


@pytest.fixture(scope="module")
def seen():
    x = nd.ones((3,))
    x.attach_grad()
    with autograd.record():
        y = nd.t_undeclared(x)
    y.backward()
    x.grad.wait_to_read()
    return _seen


@pytest.mark.parametrize("use", USES)
def test_every_use_is_refused(seen, use):
    assert isinstance(seen[use], MXNetError), seen[use]
    assert "in_data[0] of t_undeclared is not in the declared backward" in str(seen[use])


def test_it_may_be_shown(seen):
    text = "<in_data[0] of t_undeclared: not in the declared backward dependency>"
    assert seen["shown"] == text

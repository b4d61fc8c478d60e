"""Operators that call operators, on many threads."""

import threading

import numpy as np
import pytest
from subclassing import operator, registered

import rsnet as mx
from rsnet import autograd, nd

F32 = np.float32


def test_thread_state_inside_a_callback():
    seen = []

    def forward(self, ctx, in_data, req, out_data, aux):
        seen.append((autograd.is_recording(), autograd.is_training(), ctx.is_train))
        x = in_data[0].copy()
        x.attach_grad()
        with autograd.record():
            z = x * x
        z.backward()
        self.assign(out_data[0], req[0], x.grad)

    f = registered("t_inside", create_operator=lambda self, ctx: operator(forward))
    with autograd.record():
        y = f(nd.array([3.0]))
        assert autograd.is_recording()
    assert y.asscalar() == 6
    assert f(nd.array([2.0])).asscalar() == 4
    assert seen == [(False, True, True), (False, False, False)]


def test_operators_that_use_operators_that_wait():
    def add_one(self, ctx, in_data, req, out_data, aux):
        self.assign(out_data[0], req[0], nd.array(in_data[0].asnumpy() + 1))

    registered("t_inner", create_operator=lambda self, ctx: operator(add_one))

    def forward(self, ctx, in_data, req, out_data, aux):
        y = nd.t_inner(in_data[0])
        y.wait_to_read()
        nd.waitall()
        out_data[0][:] = nd.t_inner(y)

    f = registered("t_outer", create_operator=lambda self, ctx: operator(forward))
    assert f(nd.zeros((1,))).asscalar() == 2


def test_nested_200_deep_with_one_worker():
    class Depth(mx.Parameter):
        n: int = mx.field(0)

    def forward(self, ctx, in_data, req, out_data, aux):
        n = self.n
        self.assign(out_data[0], req[0], (nd.t_deep(in_data[0], n=n - 1) if n else in_data[0]) + 1)
        if n % 2:
            out_data[0].asnumpy()

    class Op(mx.Operator):
        pass

    Op.forward = forward

    def create(self, ctx):
        made = Op()
        made.n = self.param.n
        return made

    registered("t_deep", Param=Depth, create_operator=create)
    engine = pytest.importorskip("rsnet.engine")
    before = engine.num_threads()
    engine.set_num_threads(1)
    try:
        assert nd.t_deep(nd.zeros((1,)), n=200).asscalar() == 201
    finally:
        engine.set_num_threads(before)


def test_endless_recursion_is_an_error():
    def forward(self, ctx, in_data, req, out_data, aux):
        self.assign(out_data[0], req[0], nd.t_endless(in_data[0]))

    f = registered("t_endless", create_operator=lambda self, ctx: operator(forward))
    with pytest.raises(RecursionError, match="t_endless"):
        f(nd.zeros((1,))).asnumpy()


def test_eight_threads():
    def forward(self, ctx, in_data, req, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0])

    registered("t_same", create_operator=lambda self, ctx: operator(forward))
    results = [None] * 8

    def run(k):
        y = nd.full((3,), k)
        for _ in range(50):
            y = nd.t_same(y)
        results[k] = y.asnumpy().tolist()

    threads = [threading.Thread(target=run, args=(k,)) for k in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert results == [[k] * 3 for k in range(8)]

"""What user code keeps of operators, executors and histories does not keep itself alive."""

import gc
import weakref

import pytest

import rsnet as mx
from rsnet import autograd, nd


class Keeps(mx.operator.CustomOp):
    """Keeps its operands, and whatever `kept` has."""

    kept = None
    alive = weakref.WeakSet()

    def __init__(self):
        super().__init__()
        self.extra = Keeps.kept
        Keeps.alive.add(self)

    def forward(self, is_train, req, in_data, out_data, aux):
        self.x, self.y = in_data[0], out_data
        self.assign(out_data[0], req[0], in_data[0])

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.g = out_grad, in_grad
        self.assign(in_grad[0], req[0], out_grad[0])


@mx.operator.register("keeps_its_operands")
class KeepsProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return Keeps()


def keeping(x):
    return mx.sym.Custom(x, op_type="keeps_its_operands")


def count():
    gc.collect()
    nd.waitall()
    gc.collect()
    return len(Keeps.alive)


def test_an_operator_that_keeps_operands_goes_with_its_executor():
    before = count()
    net = keeping(keeping(mx.sym.var("x")))
    for _ in range(5):
        exe = net.simple_bind(mx.cpu(), x=(50, 50))
        exe.forward(is_train=True)
        exe.backward([nd.ones((50, 50))])
        nd.waitall()
        assert len(Keeps.alive) > before
        del exe
    assert count() == before


def test_an_operator_that_keeps_operands_with_requests_that_need_temporaries():
    before = count()
    net = keeping(mx.sym.var("x"))
    for _ in range(5):
        exe = net.simple_bind(mx.cpu(), grad_req="add", x=(5, 5))
        exe.forward(is_train=True)
        exe.backward([nd.ones((5, 5))])
        nd.waitall()
        del exe
    assert count() == before


def test_an_operator_that_refers_to_its_executor_is_collected():
    before, holder = count(), {}
    net = keeping(mx.sym.var("x"))
    for _ in range(5):
        holder, Keeps.kept = {}, None
        Keeps.kept = holder
        exe = net.simple_bind(mx.cpu(), x=(5, 5))
        exe.forward(is_train=True)
        exe.outputs[0].wait_to_read()
        holder["exe"] = exe
        Keeps.kept = None
        del exe, holder
    assert count() == before


def test_a_monitor_that_refers_to_its_executor_is_collected():
    net = mx.sym.exp(mx.sym.var("x"))
    refs = []
    for _ in range(5):
        exe = net.simple_bind(mx.cpu(), x=(5, 5))
        seen = []

        def monitor(name, array, exe=exe, seen=seen):
            seen.append((name, exe))

        exe.set_monitor_callback(monitor)
        exe.forward()
        assert seen
        refs.append(weakref.ref(monitor))
        del exe, monitor, seen
    gc.collect()
    assert [ref() for ref in refs] == [None] * 5


class Square(autograd.Function):
    def forward(self, x):
        self.inner = x * x
        return self.inner

    def backward(self, dy):
        return dy


@pytest.mark.parametrize("steps", [0, 3], ids=["own output", "what was computed from it"])
def test_a_function_that_holds_its_output_is_collected(steps):
    refs = []
    for _ in range(5):
        x = nd.ones((50, 50))
        x.attach_grad()
        f = Square()
        with autograd.record():
            y = f(x)
            for _ in range(steps):
                y = y + 1
        f.out = y
        refs.append(weakref.ref(f))
        del f, x, y
    gc.collect()
    assert [ref() for ref in refs] == [None] * 5


def test_collection_leaves_what_is_in_use_alone():
    x = nd.ones((3,))
    x.attach_grad()
    f = Square()
    with autograd.record():
        y = f(x) * 2
        z = y + 1
    f.out = y
    del f, y
    gc.collect()
    z.backward()
    assert (x.grad.asnumpy() == 2).all()
    exe = keeping(mx.sym.var("x")).simple_bind(mx.cpu(), x=(4,))
    for _ in range(3):
        gc.collect()
        exe.forward(is_train=True)
        exe.backward([nd.ones((4,))])
        gc.collect()
    assert (exe.grad_dict["x"].asnumpy() == 1).all()


def test_a_recorded_operator_that_holds_its_output_is_collected():
    before = count()
    for _ in range(5):
        x = nd.ones((5,))
        x.attach_grad()
        holder = Keeps.kept = []
        with autograd.record():
            holder.append(nd.Custom(x, op_type="keeps_its_operands"))
        holder[0].wait_to_read()
        Keeps.kept = None
        del holder, x
    assert count() == before

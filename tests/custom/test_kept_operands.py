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


class Histories:
    """Functions and their outputs in several shapes of history; `refs` outlive them."""

    def __init__(self):
        self.refs = []

    def function(self):
        f = Square()
        self.refs.append(weakref.ref(f))
        return f

    def input(self):
        x = nd.ones((50, 50))
        x.attach_grad()
        return x

    def chain(self):
        """Every step of a chain is kept."""
        f, x = self.function(), self.input()
        with autograd.record():
            f.kept = [f(x)]
            for _ in range(4):
                f.kept.append(f.kept[-1] + 1)

    def fork(self):
        """One value has two users, which meet again."""
        f, x = self.function(), self.input()
        with autograd.record():
            y = f(x)
            a, b = y + 1, y * 2
            f.kept = [y, a, b, a * b, y * y]

    def two_functions(self):
        """Functions that keep each other's outputs."""
        f, g, x = self.function(), self.function(), self.input()
        with autograd.record():
            y = f(x)
            z = g(y + 1)
        f.kept, g.kept = [z, z + 1], [y, y + z]

    def outside(self):
        """A value computed from another function's output, which something else keeps."""
        f, x = self.function(), self.input()
        f.other = self.function()
        with autograd.record():
            y = f(f.other(x))
            f.kept = [y, y + 1]

    def operator(self):
        """An operator written in Python, and arrays computed from its output."""
        x, Keeps.kept = self.input(), []
        with autograd.record():
            y = nd.Custom(x, op_type="keeps_its_operands")
            Keeps.kept += [y, y + 1, y * y]
        nd.waitall()
        Keeps.kept = None

    def cached(self):
        """An operator inside of a graph that is called like one."""
        x, Keeps.kept = self.input(), []
        graph = nd.CachedOp(keeping(mx.sym.var("x")))
        with autograd.record():
            y = graph(x)
            Keeps.kept += [y, y + 1, y * y]
        nd.waitall()
        Keeps.kept = None

    def twice(self):
        """Gradients that were themselves recorded."""
        f, x = self.function(), self.input()
        with autograd.record():
            y = f(x) * x
            (g,) = autograd.grad([y], [x], create_graph=True)
            f.kept = [y, g, g + y]

    def after_backward(self):
        """A history of which a part is cleared."""
        f, g, x = self.function(), self.function(), self.input()
        with autograd.record():
            y = f(x)
            z = g(x) + y
        y.backward()
        f.kept = g.kept = [y, z, y + 1]


SHAPES = [name for name in vars(Histories) if not name.startswith(("_", "function", "input"))]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_history_that_several_arrays_share_is_collected(shape):
    before, made = count(), Histories()
    for _ in range(5):
        getattr(made, shape)()
    assert count() == before
    assert [ref() for ref in made.refs] == [None] * len(made.refs)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shared_history_is_collected_in_any_order_of_collections(shape):
    before, made = count(), Histories()
    for generation in (0, 1, 2, 0, 1):
        getattr(made, shape)()
        gc.collect(generation)
    assert count() == before
    assert [ref() for ref in made.refs] == [None] * len(made.refs)


@pytest.mark.parametrize("kept", range(4))
def test_one_array_keeps_the_history_that_others_in_a_cycle_share(kept):
    f, x = Square(), nd.array([3.0])
    x.attach_grad()
    with autograd.record():
        y = f(x)
        a, b = y + 1, y * 2
        f.kept = [y, a, b, a * b]
    expected = [1, 1, 2, 2 * 9 + 2 * 10][kept]
    last, ref = f.kept[kept], weakref.ref(f)
    del f, y, a, b
    for _ in range(3):
        gc.collect()
    assert len(ref().kept) == 4  # nothing of it was cleared
    last.backward()
    assert x.grad.asscalar() == expected
    del last
    gc.collect()
    assert ref() is None


def test_arrays_that_share_a_history_come_and_go_between_collections():
    """Counts made in a collection are stale in the next."""
    f, x = Square(), nd.array([3.0])
    x.attach_grad()
    with autograd.record():
        f.kept = [f(x)]
        outside = []
        for step in range(40):
            outside.append(f.kept[-1] + step)
            if step % 3 == 0:
                f.kept.append(outside.pop(0))
            if step % 5 == 0:
                gc.collect(step // 5 % 3)
    ref = weakref.ref(f)
    del f
    gc.collect()
    assert ref().kept
    outside[0].backward()
    assert x.grad.asscalar() == 1
    del outside
    gc.collect()
    assert ref() is None


def test_a_long_history_above_a_function_is_collected():
    made = Histories()
    f, x = made.function(), made.input()
    with autograd.record():
        y = f(x)
        f.kept = [y]
        for _ in range(20_000):
            y = y + 1
    f.kept.append(y)
    del f, y
    gc.collect()
    assert [ref() for ref in made.refs] == [None]


def test_collection_amid_a_backward_pass():
    seen = []

    class Collects(Square):
        def backward(self, dy):
            gc.collect()
            seen.append(len(self.kept))
            return dy

    functions = [Collects() for _ in range(3)]
    x = nd.array([2.0])
    x.attach_grad()
    with autograd.record():
        y = x
        kept = []
        for f in functions:
            y, f.kept = f(y), kept
            kept.append(y)
    refs = [weakref.ref(f) for f in functions]
    del functions, f, kept
    y.backward()
    assert seen == [3, 3, 3]
    assert x.grad.asscalar() == 1
    del y
    gc.collect()
    assert [ref() for ref in refs] == [None] * 3

"""What the layers promise one another where threads, callbacks, errors and memory meet.

Each test names the contract it guards. Those that could hang run in processes of their own.
Contracts between Rust parts alone are guarded in Rust: planned memory under random delays and
recycling after errors (`rust/executor/contract_tests.rs`, `tests/rust/engine_contracts.rs`), and
pushers against inline readers (the loom model in `rust/ndarray/access_latch.rs`).
"""

import textwrap
import threading

import numpy as np
import pytest
from processes import printed

import rsnet as mx
from rsnet import nd, sym

pytestmark = pytest.mark.process

OPERATORS = """
import os, sys, threading
import numpy as np
import rsnet as mx
from rsnet import nd, engine

def operator(name, forward):
    class Op(mx.Operator):
        pass
    Op.forward = forward
    class Property(mx.OperatorProperty):
        def infer_shape(self, in_shape):
            return in_shape, [in_shape[0]], []
        def create_operator(self, ctx):
            return Op()
    mx.operator.register(name)(Property)
    return getattr(nd, name)
"""


def program(code, **env):
    return printed(OPERATORS + textwrap.dedent(code), **env)


# ---- 1: a callback that waits for what it writes ------------------------------------------------

WRITES_AND_WAITS = """
engine.set_num_threads(1)

def first(self, ctx, in_data, req, out_data, aux):
    out_data[0][:] = in_data[0] + 1
    out_data[0].wait_to_read()

def second(self, ctx, in_data, req, out_data, aux):
    self.assign(out_data[0], req[0], nd.array(in_data[0].asnumpy() * 2))

c1, c2 = operator("c1", first), operator("c2", second)
x = nd.array([1.0, 2.0])

def chain():
    return c2(c1(x)).asnumpy().tolist()

# Called by the pusher, by threads of their own, and from inside another callback.
print(chain())
y = nd.zeros((2,))
for _ in range(40):
    y = c2(c1(nd.dot(nd.ones((2, 2)), y)))
got = []
threads = [threading.Thread(target=lambda: got.append(chain())) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
print(*got, sep=chr(10))

def outer(self, ctx, in_data, req, out_data, aux):
    y = c1(in_data[0])
    z = c2(y)
    z.wait_to_read()
    out_data[0][:] = z

print(operator("outer", outer)(x).asnumpy().tolist())
net = mx.sym.c2(mx.sym.c1(mx.sym.Variable("x")))
exe = net.bind(mx.cpu(), {"x": x})
print(exe.forward()[0].asnumpy().tolist())
"""


@pytest.mark.parametrize("kind", ["ThreadedEngine", "NaiveEngine"])
def test_contract_1_a_callback_waits_for_what_it_writes_with_one_worker(kind):
    out = program(WRITES_AND_WAITS, MXNET_ENGINE_TYPE=kind)
    assert out.splitlines() == ["[4.0, 6.0]"] * 7


def test_contract_1_functions_that_wait_for_a_later_event_with_one_worker():
    """C1 writes y and waits for an event set after both pushes; C2 reads y."""
    out = program(
        """
        engine.set_num_threads(1)
        y, event, log = engine.new_variable(), threading.Event(), []
        engine.push_sync(lambda rc: (event.wait(), log.append("C1")), mutate_vars=[y])
        engine.push_sync(lambda rc: log.append("C2"), const_vars=[y])
        event.set()
        engine.wait_for_var(y)
        print(log)
        """
    )
    assert out == "['C1', 'C2']"


# ---- 3: threads that come and go -----------------------------------------------------------------

IMPORT_IN_A_THREAD = """
import sys, threading
made = []

def importer():
    global mx, nd
    import rsnet as mx
    from rsnet import nd
    made.append(nd.arange(4) * 2)

thread = threading.Thread(target=importer)
thread.start()
thread.join()
assert made[0].asnumpy().tolist() == [0, 2, 4, 6]

wrong, stop = [], threading.Event()
weight = nd.array([[1.0, 2.0], [3.0, 4.0]])
net = mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=2, no_bias=True, name="fc")
exe = net.bind(mx.cpu(), {"x": nd.zeros((1, 2)), "fc_weight": weight})

def work(k):
    try:
        v, log = mx.engine.new_variable(), []
        big = nd.full((80, 80), k)
        for i in range(12):
            mx.engine.push_sync(lambda rc, i=i: log.append(i), mutate_vars=[v])
            if (nd.dot(big, big)[0, 0].asscalar()) != 80.0 * k * k:
                wrong.append(("dot", k))
            got = exe.forward(x=nd.array([[k, i]]))[0].asnumpy().tolist()
            if got != [[k + 2.0 * i, 3.0 * k + 4.0 * i]]:
                wrong.append(("executor", k, got))
        mx.engine.wait_for_var(v)
        if log != list(range(12)):
            wrong.append(("order", k, log))
    except Exception as error:
        wrong.append((k, repr(error)))

def resize():
    n = 0
    while not stop.is_set():
        n += 1
        mx.engine.set_num_threads(1 + n % 4)
        stop.wait(0.002)

threads = [threading.Thread(target=work, args=(k,)) for k in range(64)]
resizer = threading.Thread(target=resize)
resizer.start()
[t.start() for t in threads]
[t.join() for t in threads]
stop.set()
resizer.join()
nd.waitall()
print(wrong)
"""


def test_contract_3_import_in_a_thread_that_ends_64_threads_and_a_pool_resized_meanwhile():
    assert printed(IMPORT_IN_A_THREAD) == "[]"


# ---- 4: fork -------------------------------------------------------------------------------------

FORK = """
stop = threading.Event()
ready = nd.dot(nd.ones((20, 20)), nd.ones((20, 20)))
ready.wait_to_read()

def pusher():
    x = nd.ones((30, 30))
    while not stop.is_set():
        x = nd.dot(x, x) * 0.001
        engine.push_sync(lambda rc: None)
        x.wait_to_read()

def forks(self, ctx, in_data, req, out_data, aux):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            data = ready.asnumpy()
            fresh = (nd.dot(ready, ready) + 1).asnumpy()  # kernels work, on threads of its own
            view = ready[3:5]
            del view
            globals()["ready"] = None
            code = 0 if (data == 20).all() and (fresh == 8001).all() else 2
        finally:
            os._exit(code)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    self.assign(out_data[0], req[0], in_data[0])

codes = []
f = operator("forks", forks)
threads = [threading.Thread(target=pusher) for _ in range(8)]
[t.start() for t in threads]
for i in range(6):
    if i % 2:  # on the pushing thread, and on a thread of the engine
        f(nd.ones((1,))).asnumpy()
    else:
        f(nd.dot(nd.ones((200, 200)), nd.ones((200, 200)))).asnumpy()
stop.set()
[t.join() for t in threads]
nd.waitall()
print(codes, (ready.asnumpy() == 20).all())
"""


def test_contract_4_fork_from_a_callback_while_8_threads_push():
    assert program(FORK) == "[0, 0, 0, 0, 0, 0] True"


def test_contract_4_a_child_that_leaves_by_the_front_door():
    """Forked inside a callback of the main thread; the child ends as any program does."""
    out = program(
        """
parent = os.getpid()
def forks(self, ctx, in_data, req, out_data, aux):
    globals()["pid"] = os.fork()
    self.assign(out_data[0], req[0], in_data[0])

y = operator("forks_and_goes_on", forks)(nd.ones((2,)))
if os.getpid() == parent:
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), y.asnumpy().tolist())
else:
    x = nd.dot(nd.ones((9, 9)), nd.ones((9, 9)))
    sys.exit(0 if (x.asnumpy() == 9).all() else 3)
"""
    )
    assert out == "0 [1.0, 1.0]"


# ---- 6: poison -----------------------------------------------------------------------------------


class Fails(mx.Operator):
    """Never computes anything."""

    def forward(self, ctx, in_data, req, out_data, aux_states):
        raise ArithmeticError("never computed")


@mx.operator.register("test_contracts_fails")
class FailsProperty(mx.OperatorProperty):
    def infer_shape(self, in_shape):
        return in_shape, [in_shape[0]], []

    def create_operator(self, ctx):
        return Fails()


def poisoned():
    array = nd.test_contracts_fails(nd.ones((4,)))
    with pytest.raises(ArithmeticError, match="never computed"):
        array.wait_to_read()
    array.wait_to_read()  # reported: no second time
    return array


PARTS = {
    "slice": lambda a: a.__setitem__(slice(0, 2), 5),
    "element": lambda a: a.__setitem__(3, 5),
    "array into a slice": lambda a: a.__setitem__(slice(1, 3), nd.zeros((2,))),
    "view": lambda a: a[1:3].__setitem__(slice(None), 7),
    "in place": lambda a: a.__iadd__(1),
}


@pytest.mark.parametrize("part", PARTS)
def test_contract_6_a_partial_write_leaves_the_poison(part):
    array = poisoned()
    try:
        PARTS[part](array)
        nd.waitall()
    except ArithmeticError:
        pass  # the error may be raised again; what matters is what follows
    for read in (array.asnumpy, lambda: (array + 1).asnumpy(), lambda: array[3:].asnumpy()):
        with pytest.raises(ArithmeticError, match="never computed"):
            read()


WHOLES = {
    "number": lambda a: a.__setitem__(slice(None), 3),
    "array": lambda a: a.__setitem__(slice(None), nd.full((4,), 3)),
    "numpy": lambda a: a.__setitem__(slice(None), np.full(4, 3, "float32")),
    "out": lambda a: nd.relu(nd.full((4,), 3), out=a),
    "copyto": lambda a: nd.full((4,), 3).copyto(a),
}


@pytest.mark.parametrize("whole", WHOLES)
def test_contract_6_a_whole_write_heals(whole):
    array = poisoned()
    WHOLES[whole](array)
    assert array.asnumpy().tolist() == [3.0] * 4
    assert (array + 1).asnumpy().tolist() == [4.0] * 4


def test_contract_6_an_error_healed_before_any_wait_is_still_told_once():
    array = nd.test_contracts_fails(nd.dot(nd.ones((4, 4)), nd.ones((4,))))
    array[:] = 3
    with pytest.raises(ArithmeticError, match="never computed"):
        nd.waitall()
    nd.waitall()
    assert array.asnumpy().tolist() == [3.0] * 4


# ---- 7: arrays kept by a monitor -----------------------------------------------------------------


def test_contract_7_a_monitor_that_keeps_arena_entries():
    """They keep their values while later runs reuse the memory, and outlive the executor."""
    net = sym.Variable("x")
    for i in range(8):
        net = sym.exp(sym.negative(net * 0.5, name=f"neg{i}"), name=f"exp{i}")
    exe = net.simple_bind(mx.cpu(), x=(64, 64))
    exe.arg_dict["x"][:] = 1
    kept, copies, seen, expected, value = [], [], {}, {}, np.float32(1)
    for i in range(8):
        expected[f"neg{i}_output"] = value = -(value * np.float32(0.5))
        expected[f"exp{i}_output"] = value = np.exp(value)

    def keep(name, array):
        kept.append(array)
        copies.append(array.asnumpy().copy())
        seen.setdefault(name, copies[-1])

    exe.set_monitor_callback(keep)
    exe.forward(is_train=True)
    exe.backward([nd.ones((64, 64))])
    for name, want in expected.items():
        np.testing.assert_allclose(seen[name], np.full((64, 64), want), rtol=1e-5, err_msg=name)
    wrong, done = [], threading.Event()

    def reader():
        while not done.is_set():
            for array, copy in zip(kept, copies, strict=True):
                got = array.asnumpy()
                if not (got == copy).all():
                    wrong.append(got)

    exe.set_monitor_callback(None)
    thread = threading.Thread(target=reader)
    thread.start()
    for i in range(30):
        exe.arg_dict["x"][:] = 1 + i / 30
        exe.forward(is_train=True)
        exe.backward([nd.ones((64, 64))])
    nd.waitall()
    done.set()
    thread.join()
    assert not wrong, "a kept entry changed"
    del exe
    for array, copy in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(array.asnumpy(), copy)
        array[:] = 0  # memory that nothing else uses: nothing breaks


# ---- 8: waiting for everything -------------------------------------------------------------------

WAITALL = """
stop, seen = threading.Event(), []

def endless():
    v, x = engine.new_variable(), nd.ones((40, 40))
    while not stop.is_set():
        engine.push_sync(lambda rc: None, mutate_vars=[v])
        nd.dot(x, x)

def forward(self, ctx, in_data, req, out_data, aux):
    v, log = engine.new_variable(), []
    for i in range(20):
        engine.push_sync(lambda rc, i=i: log.append(i), mutate_vars=[v])
    y = nd.dot(nd.ones((64, 64)), nd.ones((64, 64)))
    nd.waitall()
    seen.append(log == list(range(20)))
    self.assign(out_data[0], req[0], y[0, :2])

f = operator("waits_for_all", forward)
threads = [threading.Thread(target=endless) for _ in range(pushers)]
[t.start() for t in threads]
print(f(nd.ones((2,))).asnumpy().tolist())
engine.push_sync(lambda rc: nd.waitall())
print(f(nd.dot(nd.ones((2, 2)), nd.ones((2,)))).asnumpy().tolist())
log, v = [], engine.new_variable()
engine.push_sync(lambda rc: log.append("mine"), mutate_vars=[v])
nd.waitall()
print(log, seen)
stop.set()
[t.join() for t in threads]
nd.waitall()
"""


@pytest.mark.parametrize("pushers", [0, 2])
def test_contract_8_waitall_inside_a_callback_and_beside_endless_pushers(pushers):
    lines = program(f"pushers = {pushers}\n" + WAITALL).splitlines()
    assert lines == ["[64.0, 64.0]", "[64.0, 64.0]", "['mine'] [True, True]"]


# ---- 9: a shared arena ---------------------------------------------------------------------------


def test_contract_9_backward_after_another_executor_used_the_arena():
    net = sym.exp(sym.exp(sym.Variable("x")) * 2)
    one = net.simple_bind(mx.cpu(), x=(4,))
    two = net.simple_bind(mx.cpu(), x=(4,), shared_exec=one)
    head = nd.ones((4,))
    one.forward(is_train=True)
    one.backward(head)
    one.forward(is_train=True)
    two.forward(is_train=True)
    with pytest.raises(mx.MXNetError, match="another executor"):
        one.backward(head)
    two.backward(head)
    one.forward(is_train=True)
    one.backward(head)
    np.testing.assert_allclose(
        one.grad_dict["x"].asnumpy(), 2 * np.exp(2.0) * np.ones(4), rtol=1e-5
    )

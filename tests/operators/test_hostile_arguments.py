"""Hostile programs: nothing that Python code can pass or do may abort, hang, leak or lie.

`hostile.py` calls every operator with arguments that are wrong in all the ways it knows; here some
of its calls are made, at even distances. `python tests/support/hostile.py JOURNAL 0 1 1000000000`
makes them all.
"""

import os
import re
import signal
import subprocess
import sys

import pytest
from places import SUPPORT
from processes import LIMIT_S, printed, run

import rsnet as mx
from rsnet import nd

pytestmark = pytest.mark.process

PROGRAM = SUPPORT / "hostile.py"
STEP = 17  # of some 31,000 calls


def test_operators_refuse_hostile_arguments(tmp_path):
    journal = tmp_path / "journal"
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(journal), "5", str(STEP), "1000000000"],
        capture_output=True, text=True, timeout=10 * LIMIT_S,
    )  # fmt: skip
    lines = journal.read_text(errors="replace").splitlines()
    bad = [line for line in lines if line.startswith("bad")]
    assert not bad, "\n".join(bad[:20])
    assert lines[-1].startswith("end"), f"died in {lines[-1]}\n{done.stderr[-3000:]}"
    assert int(lines[-1].split()[1]) > 1000 and done.returncode == 0


HUGE = 2**62
REFUSED = {
    "inputs without number": (lambda x: nd.add_n(x, num_args=2**31 - 1), "num_args"),
    "stacked without number": (lambda x: nd.stack(x, num_args=2**31 - 1), "num_args"),
    "joined without number": (lambda x: nd.concat(x, num_args=2**31 - 1), "num_args"),
    "pieces without number": (lambda x: nd.SliceChannel(x, num_outputs=2**31 - 1), "num_outputs"),
    "sections without number": (lambda x: nd._internal._split_v2(x, (0,), sections=2**31 - 1),
        "sections"),
    "layers without number": (
        lambda x: nd.RNN(x, x, x, state_size=3, num_layers=2**31 - 1, mode="gru"),
        "num_layers",
    ),
    "a dilated kernel beyond 64 bits": (
        lambda x: nd.Convolution(
            nd.ones((1, 1, 5, 5)), nd.ones((1, 1, 3, 3)), no_bias=True, kernel=(3, 3),
            num_filter=1, dilate=(HUGE, 2),
        ),
        "dilate",
    ),
    "padding beyond 64 bits": (
        lambda x: nd.Deconvolution(
            nd.ones((1, 1, 5, 5)), nd.ones((1, 1, 3, 3)), kernel=(3, 3), num_filter=1,
            pad=(HUGE, 2),
        ),
        "pad",
    ),
    "known extents whose product does not fit": (
        lambda x: nd.reshape(x, shape=(2**62, 4, -1)),
        "Reshape: shape (4611686018427387904, 4) has too many elements",
    ),
    "a single-precision parameter beyond its range": (lambda x: nd.smooth_l1(x, 1e308),
        "within its range"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_refused_with_the_name_of_what_is_wrong(what):
    call, word = REFUSED[what]
    with pytest.raises((mx.MXNetError, ValueError, TypeError), match=re.escape(word)):
        call(nd.ones((2, 3))).asnumpy()


def test_extreme_but_meaningful():
    """Numbers at the ends of their types that do have a meaning."""
    x = nd.array([[1, 2, 3], [4, 5, 6]])
    steps = nd.slice(x, begin=(0, 2), end=(2, None), step=(HUGE, -(2**63)))
    assert steps.asnumpy().tolist() == [[3.0]]
    assert nd.slice(x, begin=(-(2**63), 0), end=(2**63 - 1, 1)).asnumpy().tolist() == [[1.0], [4.0]]
    assert nd.eye(2, k=2**63 - 1).asnumpy().tolist() == [[0.0, 0.0], [0.0, 0.0]]
    inf, nan = float("inf"), float("nan")
    bad = nd.array([inf, nan, -1.0, -3e38])
    assert nd.random.gamma(bad[:1], nd.ones((1,))).asnumpy() == [inf]
    for values in (bad, bad[1:], bad[2:]):
        for draw in (lambda a: nd.random.gamma(a, nd.ones(a.shape)), nd.random.poisson):
            with pytest.raises(ValueError, match=r"invalid (alpha|lam)\[\d\] '.*': expected"):
                draw(values).asnumpy()


@pytest.mark.parametrize(("low", "high"), [(2**60 + 200, 2**60 + 203), (-(2**63), 2**63 - 1)])
def test_integers_are_drawn_from_ranges_of_all_bits(low, high):
    draws = [int(x) for x in nd.random.randint(low, high, shape=(400,), dtype="int64").asnumpy()]
    assert all(low <= x < high for x in draws)
    assert len(set(draws)) == min(high - low, 400)


EXIT_WITH_PUSHERS = """
import threading, rsnet as mx
from rsnet import nd, engine

def forever():
    x, v = nd.ones((50, 50)), engine.new_variable()
    while True:
        x = nd.dot(x, x) * 0.001
        engine.push_sync(lambda rc: None, mutate_vars=[v])

for _ in range(8):
    threading.Thread(target=forever, daemon=True).start()
threading.Event().wait(0.3)
print("leaving")
"""


def test_exit_while_8_daemon_threads_push():
    assert printed(EXIT_WITH_PUSHERS) == "leaving"


CALLBACKS = """
import sys, threading, rsnet as mx
from rsnet import nd, engine
from rsnet.engine import *

class Own(BaseException):
    pass

for kind in (SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration, MemoryError, Own,
             RecursionError):
    def f(rc):
        raise kind("from the callback")
    v = new_variable()
    push_sync(f, mutate_vars=[v])
    try:
        wait_for_var(v)
        print(kind.__name__, "was lost")
    except kind as error:
        assert str(error) == "from the callback"

class Dropped:
    def __del__(self):
        raise ValueError("from __del__")

sys.unraisablehook = lambda info: None
for _ in range(50):
    push_sync(lambda rc, d=Dropped(): None)
wait_for_all()

left, done = [2000], threading.Event()
def again(rc):  # a function that pushes itself
    left[0] -= 1
    push_sync(again) if left[0] else done.set()
push_sync(again)
assert done.wait(60)

def deep(n):
    return n and deep(n - 1)
v = new_variable()
push_sync(lambda rc: deep(10**6), mutate_vars=[v])
try:
    wait_for_var(v)
    print("endless recursion was fine")
except RecursionError:
    pass

v = new_variable()
push_async(lambda rc, done: (done(), done()), mutate_vars=[v], name="twice")
try:
    wait_for_var(v)
except Exception as error:
    assert "twice" in str(error) or "already" in str(error), error
wait_for_all()
print((nd.ones((2,)) + 1).asnumpy().tolist())
"""


@pytest.mark.parametrize("kind", ["ThreadedEngine", "NaiveEngine"])
def test_callbacks_that_raise_anything_recurse_and_push(kind):
    code = CALLBACKS
    if kind == "NaiveEngine":  # raises inside the push, as MXNet's does
        code = "import rsnet\n" + code.replace("[2000]", "[50]")
    assert printed(code, MXNET_ENGINE_TYPE=kind) == "[2.0, 2.0]"


SIGNALS = """
import os, signal, threading, rsnet as mx
from rsnet import nd, engine
count, handled, over = [0], threading.Event(), threading.Event()

def handler(number, frame):
    count[0] += 1
    assert (nd.ones((2,)) + 1).asnumpy().tolist() == [2.0, 2.0]
    handled.set()

def storm():
    while not over.is_set():
        handled.clear()
        os.kill(os.getpid(), signal.SIGALRM)
        handled.wait(1)

signal.signal(signal.SIGALRM, handler)
thread = threading.Thread(target=storm)
thread.start()
x, rounds = nd.ones((64, 64)), 0
while count[0] < 100 or rounds < 50:
    v = engine.new_variable()
    engine.push_sync(lambda rc: threading.Event().wait(0.001), mutate_vars=[v])
    y = nd.dot(x, x)
    engine.wait_for_var(v)
    assert (y.asnumpy() == 64).all()
    rounds += 1
over.set()
thread.join()
nd.waitall()
print("well")
"""


def test_waits_go_on_through_a_storm_of_signals():
    assert printed(SIGNALS) == "well"


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_a_waiting_process_can_be_ended():
    code = """
import threading
from rsnet import engine
v = engine.new_variable()
engine.push_sync(lambda rc: (print("up", flush=True), threading.Event().wait()), mutate_vars=[v])
engine.wait_for_var(v)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == -signal.SIGTERM


ERRORS = """
import gc, resource, weakref, rsnet as mx
from rsnet import nd, engine

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

def refused():
    for f in (
        lambda: nd.ones((2, 3)) + nd.ones((2, 4)),
        lambda: nd.Activation(nd.ones((2,)), act_type="rely"),
        lambda: nd.ones((3,))[7],
        lambda: nd.reshape(nd.ones((3,)), shape=(2**40, 2**40)),
        lambda: mx.sym.load_json("{"),
    ):
        try:
            f()
            raise AssertionError("was accepted")
        except (mx.MXNetError, ValueError, IndexError):
            pass

def failed():
    def f(rc):
        raise ValueError("x" * 1000)
    v, big = engine.new_variable(), nd.ones((1000,))
    engine.push_sync(lambda rc, big=big: f(rc), mutate_vars=[v])
    try:
        engine.wait_for_var(v)
        raise AssertionError("was lost")
    except ValueError:
        pass
    engine.delete_variable(v)

for round in range(6):
    for _ in range(300):
        refused()
        failed()
    gc.collect()
    if round == 2:
        before = resident()
grown = resident() - before
print("flat" if grown < 8 << 20 else f"{grown} bytes more")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_errors_leak_nothing():
    assert printed(ERRORS) == "flat"


def test_no_operator_hangs_a_process_that_was_told_to_stop():
    """`stop` in a callback, `start` after it, and work on both sides."""
    done = run(
        """
        from rsnet import engine, nd
        v, log = engine.new_variable(), []
        engine.push_sync(lambda rc: log.append(1), mutate_vars=[v])
        engine.wait_for_var(v)
        engine.stop()
        engine.stop()
        engine.push_sync(lambda rc: log.append(2), mutate_vars=[v])
        engine.start()
        engine.start()
        engine.wait_for_var(v)
        print(log, nd.dot(nd.ones((3, 3)), nd.ones((3, 3))).asnumpy().sum())
        """
    )
    assert done.stdout.strip() == "[1, 2] 27.0", done.stderr

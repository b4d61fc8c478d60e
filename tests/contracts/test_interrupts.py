"""Ctrl-C during a wait, exit with work pending, and errors from many threads."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from recovery import says, still_working  # noqa: F401

import rsnet as mx

Error = mx.base.MXNetError


CTRL_C = """
import signal, threading, rsnet as mx
from rsnet import nd
signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
gate, begun, v = threading.Event(), threading.Event(), mx.engine.new_variable()

class Slow(mx.Operator):
    def forward(self, ctx, in_data, req, out_data, aux):
        begun.set()
        gate.wait(60)
        self.assign(out_data[0], req[0], in_data[0])

@mx.operator.register("slow")
class SlowProperty(mx.OperatorProperty):
    def infer_shape(self, in_shape):
        return in_shape, [in_shape[0]], []
    def create_operator(self, ctx):
        return Slow()

def started_later(run, done):
    threading.Thread(target=lambda: (gate.wait(60), done()), daemon=True).start()

y = nd.zeros((1,))
threading.Thread(target=lambda: nd.slow(nd.ones((1,)), out=y), daemon=True).start()
begun.wait(60)
mx.engine.push_async(started_later, mx.cpu(), [], [v])
try:
    print("waiting", flush=True)
    WAIT
except KeyboardInterrupt:
    assert not gate.is_set()
    gate.set()
    WAIT
    assert y.asnumpy().tolist() == [1.0]
    assert (nd.ones((2,)) + 1).asnumpy().tolist() == [2.0, 2.0]
    print("interrupted and well", flush=True)
"""
WAITS = [
    "mx.engine.wait_for_var(v)",
    "y.wait_to_read()",
    "y.asnumpy()",
    "nd.waitall()",
    "repr(y)",
    "y.asscalar()",
]


@pytest.mark.process
@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_interrupt_during_a_wait(wait):
    code = CTRL_C.replace("WAIT", wait)
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline().strip() == "waiting"
    out = err = ""
    time.sleep(0.3)  # into the wait
    for _ in range(50):
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=1)
            break
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    assert "interrupted and well" in out, err


@pytest.mark.process
def test_exit_with_work_pending():
    """Unstarted work is skipped and the process ends well."""
    code = (
        "import rsnet as mx\n"
        "x = mx.nd.ones((400, 400))\n"
        "for _ in range(200): x = mx.nd.dot(x, x) * 0.001\n"
    )
    start = time.monotonic()
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert time.monotonic() - start < 60


def test_errors_from_many_threads():
    """Each thread gets the error of its own call."""
    wrong = []

    def work(n):
        for _ in range(50):
            try:
                mx.nd.ones((2, n)) + mx.nd.ones((2, n + 1))
                wrong.append("no error")
            except Error as error:
                if str(n + 1) not in str(error):
                    wrong.append(str(error))
            if (mx.nd.ones((n,)) * n).sum().asscalar() != n * n:
                wrong.append("wrong sum")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2, 8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong

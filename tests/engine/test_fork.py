"""fork while threads without the interpreter are at work, and children that go on where they were
forked.
"""

import pytest
from processes import printed

pytestmark = pytest.mark.process


def test_children_allocate_although_compute_threads_did_when_they_were_forked():
    """Each operation of the chain takes memory from the pool when it runs, on a compute thread."""
    out = printed(
        """
import os, signal, threading, time
from rsnet import engine, nd

engine.set_num_threads(2)
x, big = nd.ones((4, 4)), nd.ones((300, 300))
nd.waitall()

def pusher():
    while True:
        y = nd.broadcast_add(x.reshape((16,)), (nd.dot(big, big) * 0.0)[0:1, 0:1].reshape((1,)))
        for _ in range(1000):
            y = y + 1
        y.wait_to_read()

threading.Thread(target=pusher, daemon=True).start()
end = time.monotonic() + 6
bad = []
while time.monotonic() < end:
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        nd.zeros((3, 3)).wait_to_read()
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if status:
        bad.append(status)
print(bad, flush=True)
os._exit(0)
"""
    )
    assert out == "[]"


def test_a_child_that_returns_from_its_callback_leaves_the_parents_work_alone():
    out = printed(
        """
import os, threading
from rsnet import engine

parent = os.getpid()
v, w = engine.new_variable(), engine.new_variable()
gate, children = threading.Event(), []

def forks(rc):
    gate.wait()
    pid = os.fork()
    if pid:
        children.append(pid)

def after(rc):
    os.write(1, b"after in the parent|" if os.getpid() == parent else b"after in the child|")

engine.push_sync(forks, mutate_vars=[v])
engine.push_sync(after, const_vars=[v], mutate_vars=[w])
gate.set()
engine.wait_for_var(w)
print(os.waitpid(children[0], 0)[1])
"""
    )
    assert out == "after in the parent|0"


@pytest.mark.parametrize("how", ["read", "waitall"])
def test_what_was_waited_for_is_good_in_a_child(how):
    """A wait may return a moment before the successors of what it waited for are told."""
    out = printed(
        f"""
import os
from rsnet import nd

bad = 0
big = nd.ones((64, 64))
for _ in range(150):
    y = nd.dot(big, big)
    y.wait_to_read() if {how == "read"} else nd.waitall()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if (y.asnumpy() == 64).all() else 1)
    bad += os.waitpid(pid, 0)[1] != 0
print(bad)
"""
    )
    assert out == "0"

"""A fork at the first use of a library: children find nothing that is half made."""

import pytest
from places import ROOT
from processes import printed, run

OPERATORS = {
    "dot": "nd.dot(a, a)",
    "dot of doubles": "nd.dot(a.astype('float64'), a.astype('float64'))",
    "batch_dot": "nd.batch_dot(a.reshape((2, 32, 64)), a.reshape((2, 64, 32)))",
    "FullyConnected": "nd.FullyConnected(a, a, num_hidden=64, no_bias=True)",
    "Convolution": "nd.Convolution(a.reshape((1, 1, 64, 64)), nd.ones((4, 1, 3, 3)), kernel=(3, 3),"
    " num_filter=4, no_bias=True)",
    "RNN": "nd.RNN(a.reshape((4, 16, 64)), nd.ones((33280,)), nd.zeros((1, 16, 64)),"
    " nd.zeros((1, 16, 64)), state_size=64, num_layers=1, mode='lstm')",
    "random": "nd.random.normal(shape=(64, 64))",
    "reduction": "nd.sum(a, axis=0)",
    "sort": "nd.sort(a)",
    "element-wise": "nd.tanh(a) + a",
    "softmax": "nd.softmax(a)",
}

PROGRAM = """
import os, signal, time
from rsnet import engine, nd

engine.set_num_threads(2)
a = nd.ones((64, 64))
a.wait_to_read()
time.sleep({delay})
first = ({use})
pid = os.fork()
if pid == 0:
    signal.alarm(20)
    b = nd.ones((64, 64))
    a = b
    ({use}).wait_to_read()
    os._exit(0)
print(os.waitpid(pid, 0)[1])
first.wait_to_read()
"""


@pytest.mark.process
@pytest.mark.parametrize("use", OPERATORS.values(), ids=OPERATORS)
def test_a_child_uses_what_its_parent_used_first_at_the_fork(use):
    for delay in (0, 0.0002, 0.002, 0.004):
        assert printed(PROGRAM.format(use=use, delay=delay)) == "0"


@pytest.mark.process
def test_a_child_with_the_parents_work_pending_prints_nothing_at_exit():
    done = run(
        """
import os, threading
from rsnet import engine, nd

gate, v = threading.Event(), engine.new_variable()
engine.push_sync(lambda rc: gate.wait(20), mutate_vars=[v], name="held")
a = nd.ones((200, 200))
for _ in range(20):
    a = nd.dot(a, a) * 0.001
pid = os.fork()
if pid:
    status = os.waitpid(pid, 0)[1]
    gate.set()
    engine.wait_for_all()
    print("parent", status)
"""
    )
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("parent 0", "", 0)


@pytest.mark.process
def test_a_child_still_prints_an_error_of_its_own_at_exit():
    done = run(
        """
import os, threading
from rsnet import engine

pid = os.fork()
if pid == 0:
    begun = threading.Event()
    engine.push_sync(lambda rc: begun.set() or 1 / 0, name="of the child")
    begun.wait(20)
else:
    os.waitpid(pid, 0)
"""
    )
    assert "ZeroDivisionError" in done.stderr


@pytest.mark.process
def test_a_child_prints_its_own_error_though_the_parents_work_is_pending():
    done = run(
        """
import os, threading
from rsnet import engine, nd

gate, v = threading.Event(), engine.new_variable()
engine.push_sync(lambda rc: gate.wait(20), mutate_vars=[v], name="held")
later = [engine.new_variable() for _ in range(3)]
for w in later:
    engine.push_sync(lambda rc: None, const_vars=[v], mutate_vars=[w])
pid = os.fork()
if pid == 0:
    begun = threading.Event()
    own = engine.new_variable()
    engine.push_sync(lambda rc: begun.set() or 1 / 0, mutate_vars=[own], name="of the child")
    begun.wait(20)
else:
    status = os.waitpid(pid, 0)[1]
    gate.set()
    engine.wait_for_all()
    print("parent", status)
"""
    )
    assert done.stdout.strip() == "parent 0", done
    assert "ZeroDivisionError" in done.stderr and "pending at fork" not in done.stderr


@pytest.mark.process
def test_a_use_of_pending_results_still_fails_in_a_child():
    out = printed(
        """
import os, threading
from rsnet import engine

gate, v = threading.Event(), engine.new_variable()
engine.push_sync(lambda rc: gate.wait(20), mutate_vars=[v], name="held")
pid = os.fork()
if pid == 0:
    try:
        engine.wait_for_var(v)
    except Exception as error:
        os._exit(0 if "pending at fork" in str(error) else 1)
    os._exit(2)
status = os.waitpid(pid, 0)[1]
gate.set()
print(status)
"""
    )
    assert out == "0"


IMPORTS = {
    "rsnet.contrib.amp.convert": "mx.contrib.amp",
    "rsnet.gluon.contrib.estimator.checkpoints": "mx.gluon.contrib.estimator.CheckpointHandler",
}


@pytest.mark.process
@pytest.mark.parametrize(("module", "use"), IMPORTS.items(), ids=IMPORTS)
def test_a_child_imports_what_another_thread_was_importing_at_the_fork(module, use):
    out = printed(
        f"""
import importlib.abc, os, signal, sys, threading, time
import rsnet as mx

begun = threading.Event()

class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "{module}" and threading.current_thread() is not threading.main_thread():
            begun.set()
            time.sleep(0.2)

sys.meta_path.insert(0, Slow())
thread = threading.Thread(target=lambda: {use})
thread.start()
assert begun.wait(20)
pid = os.fork()
if pid == 0:
    signal.alarm(10)
    {use}
    os._exit(0)
print(os.waitpid(pid, 0)[1])
thread.join()
"""
    )
    assert out == "0"


def test_modules_are_imported_on_demand_by_the_one_function_that_a_fork_waits_for():
    other_packages = {"contrib/tensorboard.py", "notebook/callback.py", "docs/__main__.py"}
    within_an_import = {"_alias.py", "_interpreter.py"}
    package = ROOT / "python" / "rsnet"
    found = {
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if "import_module(" in file.read_text(encoding="utf-8")
    }
    assert found == {"_on_demand.py"} | other_packages | within_an_import

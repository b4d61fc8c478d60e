"""The profiler beside the rest of its process: forks, slow and failing files, one session after
another.
"""

import itertools
import json
import os

import pytest
from processes import printed

pytestmark = pytest.mark.process


def events_of(path, ph):
    return [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] in ph]


def test_a_counter_can_be_used_in_a_child_that_was_forked_meanwhile():
    code = """
        import os, signal, sys, threading, warnings
        import rsnet as mx
        warnings.simplefilter("ignore")
        sys.setswitchinterval(1e-5)
        counter = mx.profiler.Counter(mx.profiler.Domain("d"), "n")
        end = threading.Event()
        def work():
            while not end.is_set():
                counter.increment()
        threads = [threading.Thread(target=work) for _ in range(3)]
        [t.start() for t in threads]
        codes = []
        for _ in range(40):
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                before = counter.value
                counter.increment()
                os._exit(0 if counter.value == before + 1 else 1)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            if codes[-1]:
                break
        end.set()
        [t.join() for t in threads]
        print(codes)
    """
    assert printed(code) == str([0] * 40)


def test_a_counter_counts_every_change_of_all_threads_in_order(tmp_path):
    path = tmp_path / "trace.json"
    code = f"""
        import sys, threading
        import rsnet as mx
        sys.setswitchinterval(1e-5)
        mx.profiler.set_config(filename={str(path)!r}, continuous_dump=False)
        mx.profiler.set_state("run")
        counter = mx.profiler.Counter(mx.profiler.Domain("d"), "n")
        def work():
            for _ in range(2000):
                counter.increment(2)
                counter.decrement()
        threads = [threading.Thread(target=work) for _ in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        mx.profiler.dump()
        print(counter.value)
    """
    assert printed(code) == "8000"
    counts = sorted(events_of(path, "C"), key=lambda e: e["ts"])
    values = [0, *(e["args"]["n"] for e in counts)]
    steps = [b - a for a, b in itertools.pairwise(values)]
    assert (steps.count(2), steps.count(-1), len(steps)) == (8000, 8000, 16000)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system limits no sizes of files")
@pytest.mark.parametrize("room_bytes", [0, 10, 200, 320])
def test_an_append_that_fails_leaves_a_whole_file_and_loses_nothing(tmp_path, room_bytes):
    path = tmp_path / "trace.json"
    code = f"""
        import json, resource
        import rsnet as mx
        mx.profiler.set_config(
            filename={str(path)!r}, continuous_dump=False, profile_memory=False, profile_api=False
        )
        def limit(size):
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        def refused():
            limit({room_bytes})
            try:
                mx.profiler.dump(False)
                print("written")
            except OSError as error:
                assert "trace.json" in str(error)
            limit(resource.RLIM_INFINITY)
        mx.profiler.set_state("run")
        mx.nd.ones((2,))
        refused()
        refused()
        mx.nd.square(mx.nd.ones((2,)))
        mx.profiler.dump(False)
        whole = open({str(path)!r}).read()
        mx.nd.sqrt(mx.nd.ones((2,)))
        refused()
        print(open({str(path)!r}).read() == whole)
        mx.profiler.dump()
    """
    assert printed(code) == "True"
    assert [e["name"] for e in events_of(path, "B")] == [
        "_full",
        "_full",
        "square",
        "_full",
        "sqrt",
    ]
    assert [e["name"] for e in events_of(path, "M")] == ["process_name", "thread_name"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_file_that_makes_a_dump_wait_holds_up_nobody_else(tmp_path):
    """The file is a pipe that nobody reads at first."""
    pipe, path = tmp_path / "pipe", tmp_path / "trace.json"
    os.mkfifo(pipe)
    code = f"""
        import os, signal, threading, time, warnings
        import rsnet as mx
        warnings.simplefilter("ignore")
        signal.alarm(60)
        profiler, pipe, path = mx.profiler, {str(pipe)!r}, {str(path)!r}
        off = {{"continuous_dump": False, "profile_api": False, "profile_memory": False}}
        profiler.set_config(filename=pipe, **off)
        profiler.set_state("run")
        mx.nd.ones((2,))
        raised = []
        def dump():
            try:
                profiler.dump()
            except OSError as error:
                raised.append("pipe" in str(error))
        waiting = threading.Thread(target=dump)
        waiting.start()
        while profiler.state() == "run":
            time.sleep(0.001)
        time.sleep(0.1)
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            profiler.set_config(filename=path + ".child", **off)
            profiler.set_state("run")
            mx.nd.sqrt(mx.nd.ones((2,))).asnumpy()
            profiler.dump()
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        profiler.set_config(filename=path, **off)
        profiler.set_state("run")
        profiler.pause()
        print(profiler.state())
        profiler.resume()
        mx.nd.square(mx.nd.ones((2,))).asnumpy()
        profiler.set_state("stop")
        print(waiting.is_alive())
        open(pipe).read()
        waiting.join()
        print(raised)
        profiler.dump()
    """
    assert printed(code).split("\n") == ["0", "pause", "True", "[True]"]
    assert [e["name"] for e in events_of(path, "B")] == ["_full", "_full", "square"]
    child = tmp_path / "trace.json.child"
    assert [e["name"] for e in events_of(child, "B")] == ["_full", "sqrt"]


def test_a_writer_that_comes_after_the_end_leaves_the_file_alone(tmp_path):
    path = tmp_path / "trace.json"
    code = f"""
        import rsnet as mx
        for _ in range(20):
            mx.profiler.set_config(filename={str(path)!r}, dump_period=1e-4, profile_api=False)
            mx.profiler.set_state("run")
            mx.nd.ones((2,))
            mx.profiler.dump()
            mx._core.profiler.dump_unless_stopped()
            assert '"_full"' in open({str(path)!r}).read()
    """
    printed(code)


def test_a_session_counts_the_memory_of_its_scopes_from_zero(tmp_path):
    path = tmp_path / "trace.json"
    code = f"""
        import json
        import rsnet as mx
        mx.profiler.set_config(filename={str(path)!r}, continuous_dump=False)
        for _ in range(2):
            mx.profiler.set_state("run")
            with mx.profiler.scope("s"):
                mx.nd.ones((256,))
            mx.profiler.dump()
            events = json.load(open({str(path)!r}))["traceEvents"]
            print([e["args"][e["name"]] for e in events if e["name"].startswith("s:")])
    """
    assert printed(code).split("\n") == ["[1024]", "[1024]"]


def test_the_scope_of_a_python_operator_has_its_outputs_also_if_it_is_queued(tmp_path):
    path = tmp_path / "trace.json"
    code = f"""
        import json
        import rsnet as mx
        class Same(mx.operator.CustomOp):
            def forward(self, is_train, req, in_data, out_data, aux):
                out_data[0][:] = 1
        @mx.operator.register("scoped_same")
        class SameProp(mx.operator.CustomOpProp):
            def create_operator(self, ctx, shapes, dtypes):
                return Same()
        mx.profiler.set_config(filename={str(path)!r}, continuous_dump=False)
        for is_queued in (False, True):
            mx.profiler.set_state("run")
            x = mx.nd.ones((512, 512))
            x.wait_to_read()
            for _ in range(20 * is_queued):
                x = mx.nd.dot(x, x) * 1e-3
            with mx.profiler.scope("s"):
                y = mx.nd.Custom(x, op_type="scoped_same")
            y.wait_to_read()
            mx.profiler.dump()
            events = json.load(open({str(path)!r}))["traceEvents"]
            print([e["args"][e["name"]] for e in events if e["name"].startswith("s:")][-1:])
    """
    assert printed(code).split("\n") == [f"[{512 * 512 * 4}]"] * 2


def test_functions_are_recorded_if_they_run_in_the_session_whenever_they_were_pushed(tmp_path):
    path = tmp_path / "trace.json"
    code = f"""
        import threading
        import rsnet as mx
        from rsnet import engine
        mx.profiler.set_config(filename={str(path)!r}, continuous_dump=False)
        def pushed_before(rc):
            pass
        gate, v = threading.Event(), engine.new_variable()
        engine.push_sync(lambda rc: gate.wait(), mutate_vars=[v], name="gate")
        engine.push_sync(pushed_before, mutate_vars=[v])
        engine.push_sync(lambda rc: None, mutate_vars=[v], name="named")
        engine.push(engine.new_operator(lambda rc: None, [], [v], name="ready made"))
        engine.push_async(lambda rc, done: done(), mutate_vars=[v], name="asynchronous")
        mx.profiler.set_state("run")
        gate.set()
        mx.nd.waitall()
        mx.profiler.dump()
    """
    printed(code)
    begun = [e["name"] for e in events_of(path, "Bb") if e["cat"] == "operator"]
    found = [name for name in begun if name != "gate"]
    assert sorted(found) == ["asynchronous", "named", "pushed_before", "ready made"]


def test_a_first_session_without_configuration_has_a_table(tmp_path):
    code = (
        f"import os; os.chdir({str(tmp_path)!r})\n"
        "import rsnet as mx\n"
        "assert 'operator' not in mx.profiler.dumps()\n"
        "mx.profiler.set_state('run')\n"
        "mx.nd.square(mx.nd.ones((2,))).wait_to_read()\n"
        "mx.profiler.set_state('stop')\n"
        "print(mx.profiler.dumps())\n"
        "mx.profiler.dump()\n"
    )
    assert "square" in printed(code)
    assert (tmp_path / "profile.json").stat().st_size > 0

"""Trace files: dumps, sessions, processes that exit or fork."""

import json
import os
import warnings

import pytest
from processes import printed, run
from traces import ONLY, names, spans

import rsnet as mx
from rsnet import profiler


def test_a_file_that_cannot_be_written_is_named_and_nothing_is_lost(record, tmp_path):
    stop = record(**ONLY, filename=str(tmp_path / "no folder" / "t.json"))
    mx.nd.ones((2,))
    with pytest.raises(OSError, match="no folder"):
        profiler.dump(False)
    profiler.set_config(**ONLY, filename=str(tmp_path / "trace.json"), continuous_dump=False)
    assert names(stop()) == ["_full"]


def test_dumps_append_and_a_new_session_begins_anew(record, tmp_path):
    stop = record(**ONLY)
    mx.nd.ones((2,))
    profiler.dump(finished=False)
    assert profiler.state() == "run"
    path = tmp_path / "trace.json"
    assert names(json.loads(path.read_text())["traceEvents"]) == ["_full"]
    mx.nd.random.uniform(shape=(2,))
    assert names(stop()) == ["_full", "_random_uniform"]
    stop = record(**ONLY)
    mx.nd.random.uniform(shape=(2,))
    events = stop()
    assert names(events) == ["_random_uniform"]
    metadata = [(e["name"], e["args"]["name"]) for e in events if e["ph"] == "M"]
    assert metadata == [("process_name", "cpu/0"), ("thread_name", "main")]


@pytest.mark.process
def test_a_continuous_dump_writes_while_it_runs(tmp_path):
    path = tmp_path / "trace.json"
    code = f"""
        import json, time
        import rsnet as mx
        mx.profiler.set_config(filename={str(path)!r}, dump_period=0.05)
        mx.profiler.set_state("run")
        mx.nd.ones((2,))
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                if "_full" in open({str(path)!r}).read():
                    break
            except FileNotFoundError:
                pass
            time.sleep(0.01)
        mx.nd.random.uniform(shape=(2,))
        mx.profiler.set_state("stop")
        mx.profiler.dump()
    """
    printed(code)
    assert names(json.loads(path.read_text())["traceEvents"]) == ["_full", "_random_uniform"]


def test_old_names(tmp_path):
    path = tmp_path / "old.json"
    profiler.profiler_set_config(mode="symbolic", filename=str(path))
    profiler.profiler_set_state("run")
    mx.nd.ones((2,))
    mx.sym.square(mx.sym.Variable("x")).bind(mx.cpu(), {"x": mx.nd.ones((2,))}).forward()
    mx.nd.waitall()
    profiler.profiler_set_state("stop")
    profiler.dump_profile()
    assert names(json.loads(path.read_text())["traceEvents"]) == ["square"]
    profiler.set_config()


@pytest.mark.process
def test_autostart_records_from_the_import_and_writes_at_exit(tmp_path):
    code = f"import os; os.chdir({str(tmp_path)!r}); import rsnet as mx; "
    code += "(mx.nd.ones((2,)) + 1).asnumpy()"
    for mode, expected in (("2", ["_full", "_plus_scalar"]), ("1", [])):
        done = run(code, MXNET_PROFILER_AUTOSTART="1", MXNET_PROFILER_MODE=mode)
        assert (done.returncode, done.stderr) == (0, "")
        events = json.loads((tmp_path / "profile.json").read_text())["traceEvents"]
        assert names(events) == expected
        (tmp_path / "profile.json").unlink()
    assert run(code, MXNET_PROFILER_AUTOSTART="0").returncode == 0
    assert not (tmp_path / "profile.json").exists()
    done = run(code, MXNET_PROFILER_AUTOSTART="1", MXNET_PROFILER_MODE="all")
    assert "expected a sum of 1 (symbolic)" in done.stderr


@pytest.mark.process
def test_an_exit_while_it_runs_and_operations_are_pending_ends_well(tmp_path):
    path = tmp_path / "trace.json"
    code = f"""
        import rsnet as mx, threading
        mx.profiler.set_config(filename={str(path)!r})
        mx.profiler.set_state("run")
        x = mx.nd.ones((400, 400))
        x.wait_to_read()
        for _ in range(200):
            x = mx.nd.dot(x, x) * 1e-3
    """
    assert printed(code) == ""
    assert "_full" in names(json.loads(path.read_text())["traceEvents"])


@pytest.mark.process
def test_a_forked_child_begins_stopped_and_leaves_the_parents_file_alone(record, tmp_path):
    stop = record(**ONLY)
    mx.nd.ones((2,))
    profiler.dump(finished=False)
    other = str(tmp_path / "child.json")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            assert profiler.state() == "stop"
            profiler.set_config(**ONLY, filename=other, continuous_dump=False)
            profiler.set_state("run")
            mx.nd.random.uniform(shape=(2,)).wait_to_read()
            profiler.dump()
            with open(other) as file:
                found = spans(json.load(file)["traceEvents"])
            os._exit(
                0 if [(s[0], s[2]) for s in found] == [("_random_uniform", os.getpid())] else 1
            )
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    mx.nd.ones((2,))
    assert names(stop()) == ["_full", "_full"]


@pytest.mark.process
def test_forks_while_eight_threads_record(record):
    code = """
        import os, threading, warnings
        import rsnet as mx
        warnings.simplefilter("ignore")
        mx.profiler.set_config(filename="/dev/null", dump_period=0.01)
        mx.profiler.set_state("run")
        end = threading.Event()
        def work():
            x = mx.nd.ones((4,))
            while not end.is_set():
                x = x * 1
        threads = [threading.Thread(target=work) for _ in range(8)]
        [t.start() for t in threads]
        codes = []
        for _ in range(10):
            child = os.fork()
            if child == 0:
                mx.nd.ones((2,)).asnumpy()
                os._exit(0 if mx.profiler.state() == "stop" else 1)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        end.set()
        [t.join() for t in threads]
        mx.profiler.set_state("stop")
        print(codes)
    """
    assert printed(code) == str([0] * 10)


@pytest.mark.process
def test_the_naive_engine_records_the_same(tmp_path):
    path = tmp_path / "trace.json"
    code = f"""
        import rsnet as mx
        from rsnet import engine
        mx.profiler.set_config(filename={str(path)!r}, profile_api=False)
        mx.profiler.set_state("run")
        y = mx.nd.ones((2,)) + 1
        engine.push_sync(lambda rc: None, name="f")
        engine.push_async(lambda rc, done: done(), name="g")
        mx.nd.waitall()
        mx.profiler.dump()
    """
    printed(code, MXNET_ENGINE_TYPE="NaiveEngine")
    events = json.loads(path.read_text())["traceEvents"]
    assert names(events) == ["_full", "_plus_scalar", "f"]
    assert [e["name"] for e in events if e["ph"] == "b"] == ["g"]

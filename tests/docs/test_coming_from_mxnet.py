"""Programs written for MXNet: every form of import, names that are missing, the page about it."""

import importlib
import inspect
import json
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rsnet as mx
from rsnet import _core
from rsnet._missing_operators import WHY
from rsnet._mxnet_names import NAMES, absent
from rsnet.ndarray._register import home_of

PAGE = (Path(__file__).parents[2] / "docs" / "from_mxnet.md").read_text()

# Every form of import that a program uses, with the object that the name must be.
IMPORTS = """
import mxnet as mx; assert mx is rsnet and mx.nd is rsnet.nd
import mxnet.io; assert mxnet.io is rsnet.io
from mxnet.io import DataIter; assert DataIter is rsnet.io.DataIter
import mxnet.ndarray as nd; assert nd is rsnet.nd and nd.NDArray is rsnet.nd.NDArray
import mxnet.symbol as sym; assert sym is rsnet.sym
import mxnet.nd as nd2; assert nd2 is rsnet.nd
import mxnet.initializer; assert mxnet.init is mxnet.initializer is rsnet.init
from mxnet import autograd, metric; assert autograd is rsnet.autograd and metric is rsnet.metric
from mxnet.ndarray import op; assert op is rsnet.nd.op
import mxnet.ndarray.random as r; assert r is rsnet.nd.random
import mxnet.symbol.random as sr; assert sr is rsnet.sym.random
import importlib; assert importlib.import_module('mxnet.test_utils') is rsnet.test_utils
from mxnet.base import MXNetError; assert MXNetError is rsnet.MXNetError
"""
WAYS = ["rsnet.as_mxnet()", "sys.modules['mxnet'] = rsnet"]
ONE_COPY = """
strange = [n for n, m in sys.modules.items() if n.partition('.')[0] == 'mxnet'
           and m not in [v for k, v in sys.modules.items() if k.partition('.')[0] == 'rsnet']]
assert not strange, strange
assert rsnet.io.__spec__.name == rsnet.io.__name__ == 'rsnet.io'
"""


def python(code, *arguments, cwd=None):
    command = [sys.executable, *arguments] if code is None else [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


@pytest.mark.process
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("order", [1, -1])
def test_all_forms_of_import_give_the_same_modules(way, order):
    lines = IMPORTS.strip().splitlines()[::order]
    done = python("\n".join(["import sys, rsnet", way, *lines, ONE_COPY]))
    assert done.returncode == 0, done.stderr


@pytest.mark.process
@pytest.mark.parametrize("way", WAYS)
def test_libraries_see_that_mxnet_is_in_use(way):
    library = "import colorsys; assert sys.modules['mxnet.symbol'] is rsnet.sym"
    looks = "assert sys.modules['mxnet.ndarray'] is rsnet.nd and 'mxnet._core' not in sys.modules"
    kind = "x = rsnet.nd.ones(2); assert 'mxnet' in str(type(x)), type(x)"
    pickles = "import pickle; print(pickle.dumps([x, pickle.loads(pickle.dumps(x))]).hex())"
    done = python("\n".join(["import sys, rsnet", way, library, looks, ONE_COPY, kind, pickles]))
    assert done.returncode == 0, done.stderr
    x, y = pickle.loads(bytes.fromhex(done.stdout))  # where rsnet is not called mxnet
    assert type(x) is type(y) is mx.nd.NDArray and y.asnumpy().tolist() == [1, 1]


@pytest.mark.process
def test_as_mxnet_is_a_function_after_its_module_was_imported():
    code = (
        "import rsnet.as_mxnet\n"
        "assert rsnet.as_mxnet() is rsnet and rsnet.as_mxnet() is rsnet\n"
        "import mxnet; assert mxnet is rsnet"
    )
    assert python(code).returncode == 0


@pytest.mark.process
def test_without_it_mxnet_is_not_rsnet():
    done = python("import rsnet, mxnet.io")
    assert done.returncode and "No module named 'mxnet'" in done.stderr


@pytest.mark.process
def test_another_mxnet_that_was_imported_first_is_refused(tmp_path):
    (tmp_path / "mxnet.py").write_text("")
    done = python("import mxnet, rsnet; rsnet.as_mxnet()", cwd=tmp_path)
    assert "mxnet is imported from" in done.stderr
    done = python(
        "import rsnet; rsnet.as_mxnet(); import mxnet; assert mxnet is rsnet", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr


SCRIPT = """
import sys
import helper
import mxnet as mx
from mxnet.io import NDArrayIter

if __name__ == "__main__":
    print(sys.argv[1:], helper.VALUE, mx.mxnet_version, NDArrayIter is mx.io.NDArrayIter)
"""


@pytest.mark.process
@pytest.mark.parametrize("how", ["script", "module"])
def test_a_program_runs_unchanged(tmp_path, how):
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    (folder / "helper.py").write_text("VALUE = 7\n")
    if how == "script":
        done = python(None, "-m", "rsnet.as_mxnet", "program/train.py", "--lr", "1", cwd=tmp_path)
    else:
        done = python(None, "-m", "rsnet.as_mxnet", "-m", "train", "--lr", "1", cwd=folder)
    assert done.stdout == "['--lr', '1'] 7 1.9.1 True\n", done.stderr
    assert not done.stderr


LOOKS_FIRST = """
import sys
from importlib.util import find_spec
assert not [name for name in sys.modules if name.partition(".")[0] == "mxnet"]
assert find_spec("mxnet").name == "mxnet" and "mxnet" not in sys.modules
import colorsys
assert "mxnet" not in sys.modules
FIRST
import mxnet, rsnet
assert mxnet is sys.modules["mxnet"] is rsnet and rsnet.__spec__.name == "rsnet"
assert sys.modules["mxnet.ndarray"] is mxnet.nd and mxnet.__version__ == mxnet.mxnet_version
del sys.modules["mxnet"]
from mxnet import nd
assert nd is rsnet.nd
"""


@pytest.mark.process
@pytest.mark.parametrize("first", ["import mxnet as mx", "from mxnet import nd", "import mxnet.io"])
def test_mxnet_is_not_there_before_a_program_imports_it(tmp_path, first):
    (tmp_path / "looks.py").write_text(LOOKS_FIRST.replace("FIRST", first))
    done = python(None, "-m", "rsnet.as_mxnet", "looks.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.process
@pytest.mark.parametrize("use", ["rsnet.as_mxnet()", "import mxnet"])
def test_modules_that_mxnet_loads_need_no_import(tmp_path, use):
    (tmp_path / "uses.py").write_text(
        "import concurrent, multiprocessing, urllib, sys, rsnet\n"
        "assert 'multiprocessing.pool' not in sys.modules\n"
        f"{use}\n"
        "multiprocessing.pool.Pool, urllib.request.urlopen, concurrent.futures.Future\n"
    )
    how = () if "(" in use else ("-m", "rsnet.as_mxnet")
    done = python(None, *how, "uses.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


STARTS_PROCESSES = """
import multiprocessing as mp
from concurrent.futures import ProcessPoolExecutor
import mxnet as mx
from mxnet.io import DataIter

def twice(x):
    return mx.nd.array([x * 2]).asnumpy().tolist()

def inside(x):
    with mp.get_context("spawn").Pool(1) as pool:
        return pool.map(twice, [x])

if __name__ == "__main__":
    with ProcessPoolExecutor(1, mp.get_context("spawn")) as pool:
        print(list(pool.map(inside, [1])))
    with mp.get_context("forkserver").Pool(1) as pool:
        print(pool.map(twice, [2]))
"""


@pytest.mark.process
@pytest.mark.parametrize("how", ["script", "module"])
def test_processes_that_a_program_starts_have_the_alias(tmp_path, how):
    (tmp_path / "starts.py").write_text(STARTS_PROCESSES)
    program = ("-m", "starts") if how == "module" else ("starts.py",)
    done = python(None, "-m", "rsnet.as_mxnet", *program, cwd=tmp_path)
    assert done.stdout == "[[[2.0]]]\n[[4.0]]\n", done.stderr


@pytest.mark.process
def test_exit_codes_and_wrong_use(tmp_path):
    (tmp_path / "fails.py").write_text("import sys; sys.exit(3)")
    run = ("-m", "rsnet.as_mxnet")
    assert python(None, *run, "fails.py", cwd=tmp_path).returncode == 3
    assert "usage: python -m rsnet.as_mxnet" in python(None, *run).stderr
    said = python(None, *run, "gone.py", cwd=tmp_path).stderr
    assert "invalid script 'gone.py': expected a file that exists" in said


@pytest.mark.parametrize("module", sorted(NAMES))
def test_missing_names_say_so(module):
    target = importlib.import_module(f"rsnet.{module}".rstrip("."))
    full = f"mx.{module}." if module else "mx."
    for name in absent(module):
        text = re.escape(f"`{full}{name}` is not in rsnet yet")
        with pytest.raises(AttributeError, match=text) as caught:
            getattr(target, name)
        assert caught.value.obj is None  # no similar name is suggested
    with pytest.raises(AttributeError, match="has no attribute 'no_such'"):
        target.no_such  # noqa: B018


@pytest.mark.process
def test_unknown_names_keep_their_suggestions():
    for code, text in (
        ("mx.metrik", "'metric'"),
        ("mx.io.NDArrayItr", "'NDArrayIter'"),
        ("mx.init.Xaviar", "'Xavier'"),
        ("mx.gluon.nn.Danse", "'Dense'"),
        ("mx.nd.ones(1).asnump()", "'asnumpy'"),
        ("mx.sym.var('x').infer_shap()", "'infer_shape'"),
    ):
        error = python(f"import rsnet as mx; mx.io; {code}").stderr
        assert f"Did you mean: {text}" in error
    error = python("import rsnet as mx; mx.metric; mx.npx").stderr
    assert "`mx.npx` is not in rsnet yet" in error and "Did you mean" not in error


@pytest.mark.parametrize(
    "code",
    [
        "from rsnet.contrib import onnx", "import rsnet.contrib.onnx as onnx", "onnx = mx.onnx",
        "from rsnet import onnx", "import rsnet.onnx.mx2onnx as onnx",
        "from rsnet.contrib.onnx import onnx2mx as onnx",
    ],
)  # fmt: skip
def test_onnx_is_refused_where_it_is_used(code):
    found = {"mx": mx}
    exec(code, found)
    onnx = found["onnx"]
    assert onnx.__name__ in ("rsnet.onnx", "rsnet.contrib.onnx")
    for name in onnx.__all__:
        with pytest.raises(NotImplementedError, match=f"{name}: .* MXNet 1.9 is installed") as info:
            getattr(onnx, name)(*["model.onnx", {}, [(1, 2)]][: 3 if "export" in name else 1])
        assert isinstance(info.value, mx.MXNetError)


@pytest.mark.process
@pytest.mark.parametrize(
    "code", ["from mxnet import np", "import mxnet.np", "import mxnet.np.random as m"]
)
def test_missing_modules_say_so_in_imports(code):
    error = python(f"import rsnet; rsnet.as_mxnet()\n{code}").stderr.splitlines()[-1]
    assert error.startswith("ModuleNotFoundError: `mx.np` is not in rsnet yet")


@pytest.mark.parametrize(
    "code",
    [
        "from rsnet.kvstore import kvstore_server", "import rsnet.kvstore.kvstore_server",
        "from rsnet.kvstore.kvstore_server import KVStoreServer",
    ],
)  # fmt: skip
def test_missing_modules_in_packages_say_so(code):
    with pytest.raises(ModuleNotFoundError, match=r"`mx\.kvstore\.\w+` is not in rsnet yet"):
        exec(code)
    with pytest.raises(ImportError, match="cannot import name 'no_such'"):
        exec("from rsnet.contrib import no_such")


def test_the_page_lists_exactly_the_names_that_are_missing():
    table = PAGE.partition("| module |")[2]
    rows = re.findall(r"^\| `(mx[\w.]*)` \| (.*) \|$", table, re.MULTILINE)
    listed = {where.partition(".")[2]: re.findall(r"`(\w+)`", names) for where, names in rows}
    assert listed == {module: absent(module) for module in NAMES}


@pytest.mark.parametrize("namespace", ["nd", "sym"])
@pytest.mark.parametrize("name", ["contrib.dgl_subgraph", "contrib.quantized_rnn"])
def test_operators_missing_in_namespaces_say_so(namespace, name):
    home, short = name.split(".")
    where = getattr(getattr(mx, namespace), home)
    with pytest.raises(AttributeError, match=rf"MXNet's `{name}` is not in rsnet yet"):
        getattr(where, short)
    with pytest.raises(AttributeError) as info:
        where.no_such_operator  # noqa: B018
    assert "MXNet" not in str(info.value)


def file_of(op):
    """A symbol file whose one node has this operator."""
    nodes = [
        {"op": "null", "name": "x", "inputs": []},
        {"op": op, "name": "y", "inputs": [[0, 0, 0]]},
    ]
    return json.dumps({"nodes": nodes, "arg_nodes": [0], "heads": [[1, 0, 0]]})


@pytest.mark.parametrize("name", ["_contrib_quantized_rnn", "_npi_bincount", "_npi_unique"])
def test_an_operator_missing_in_a_file_is_not_called_the_programs_own(name):
    with pytest.raises(mx.MXNetError) as info:
        mx.sym.load_json(file_of(name))
    assert f"MXNet's `{name}` is not in rsnet yet" in str(info.value)
    assert "import its module" not in str(info.value)
    with pytest.raises(mx.MXNetError, match="import its module"):
        mx.sym.load_json(file_of("of_a_program"))


def test_fluent_methods_of_symbols_carry_signature_and_text():
    assert str(inspect.signature(mx.sym.Symbol.sum)) == str(inspect.signature(mx.sym.sum))
    assert mx.sym.Symbol.sum.__doc__ == mx.sym.sum.__doc__
    halves = mx.sym.var("x").split_v2(2, axis=1)
    assert len(halves.list_outputs()) == 2


def test_operators_that_are_listed_as_missing_are():
    there = set(WHY).intersection(_core.operator_names())
    assert not there, f"no longer missing: {sorted(there)}"


def test_the_page_lists_the_operators_that_are_missing():
    rows = re.findall(r"^\| (`_.*) \| .+ \|$", PAGE, re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"`(\w+[^_`])`", row)]
    assert sorted(listed) == sorted(set(WHY) - {"imdecode"})


@pytest.mark.parametrize("name", sorted(set(WHY) - {"imdecode"}))
def test_a_missing_operator_says_why(name):
    home, short = home_of(name)
    with pytest.raises(mx.MXNetError, match=re.escape(WHY[name])):
        mx.sym.load_json(file_of(name))
    for where in (mx.nd, mx.sym):
        with pytest.raises(AttributeError, match=re.escape(WHY[name])):
            getattr(getattr(where, home), short)

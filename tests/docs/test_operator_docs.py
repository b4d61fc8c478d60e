"""Documentation of operators: examples that run, signatures, pages and stubs from the registry."""

import ast
import doctest
import inspect
import os
import pydoc
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from operators import EXISTING, function
from test_packaging import Checker

import rsnet as mx
from rsnet import docs, op
from rsnet._operators import registry
from rsnet.docs.registry import call_of, operators
from rsnet.ndarray._methods import FLUENT

PACKAGE = Path(mx.__file__).parent
NAMES = {"mx": mx, "nd": mx.nd, "sym": mx.sym, "autograd": mx.autograd, "np": np}


@pytest.mark.parametrize("name", ["Custom", *sorted(EXISTING)])
def test_the_example_of_every_operator_runs_and_shows_a_result(name):
    text = registry.info(name)["doc"]
    example = doctest.DocTestParser().get_doctest(text, dict(NAMES), name, None, 0)
    assert any(e.want for e in example.examples), "no example with its output"
    report = []
    runner = doctest.DocTestRunner(Checker(), optionflags=doctest.ELLIPSIS)
    runner.run(example, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)


BY_HAND = {
    "nd": sorted(mx.nd._register.HANDWRITTEN),
    "nd.random": mx.nd.random.__all__,
    "nd.contrib": sorted(mx.nd._register.WRITTEN["contrib"]),
    "sym": """
        Group Variable arange eye full histogram hypot linspace load load_json maximum minimum ones
        power split_v2 zeros
    """.split(),
    "sym.random": [n for n in vars(mx.sym.random) if n in mx.nd.random.__all__],
}


@pytest.mark.parametrize("namespace", BY_HAND)
def test_functions_that_are_no_operators_have_an_example(namespace):
    """The examples run as those of all docstrings, see `test_packaging`."""
    functions = {name: eval(f"mx.{namespace}.{name}") for name in BY_HAND[namespace]}
    assert len(functions) > 5
    assert not [name for name, function in functions.items() if ">>>" not in function.__doc__]


def test_every_function_has_help_and_a_signature():
    for name in operators():
        for module in (mx.nd, mx.sym):
            f = function(module, name) if name in EXISTING else None
            if f is not None:
                assert "Returns" in f.__doc__ and f.__doc__.strip(), name
                assert "name" in inspect.signature(f).parameters, name


@pytest.mark.parametrize("name", FLUENT)
def test_fluent_methods_have_the_signature_and_text_of_their_operator(name):
    function, method = getattr(mx.nd, name), getattr(mx.nd.NDArray, name)
    if "__wrapped__" not in vars(method):
        assert method.__doc__  # written by hand
        return
    assert method.__doc__ == function.__doc__
    parameters = list(inspect.signature(function).parameters.values())
    bound = getattr(mx.nd.ones((2, 2)), name)
    assert list(inspect.signature(bound).parameters.values()) == parameters[1:]


def test_help_of_the_array_class():
    text = pydoc.render_doc(mx.nd.NDArray, renderer=pydoc.plaintext)
    assert "asynchronous" in text
    assert "clip(data=None, a_min=_Null, a_max=_Null, out=None" in text
    public = [n for n in dir(mx.nd.NDArray) if not n.startswith("_")]
    assert not [n for n in public if not getattr(mx.nd.NDArray, n).__doc__]


@pytest.mark.process
def test_operators_of_users_are_documented_like_built_in_ones(tmp_path):
    module = tmp_path / "my_operators.py"
    module.write_text(
        "import rsnet as mx\n"
        "class P(mx.Parameter):\n"
        "    times: int = mx.field(2, doc='How often.', ge=0)\n"
        "@mx.op.op('docs_multiply', param=P)\n"
        "def multiply(p, x):\n"
        "    '''Returns the product of data and a number.'''\n"
        "    return x * p.times\n"
        "mx.op.define('docs_user', inputs='in', outputs='out', doc='Returns the input.',\n"
        "             infer=lambda ctx: ctx.out('out').like(ctx.inp('in')))\n"
        "mx.op.kernel('docs_user')(lambda ctx: None)\n"
    )
    out = tmp_path / "pages"
    command = [sys.executable, "-m", "rsnet.docs", str(out), "--load", "my_operators"]
    env = os.environ | {"PYTHONPATH": f"{PACKAGE.parent}{os.pathsep}{tmp_path}"}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    text = (out / "op" / "docs_multiply.md").read_text()
    assert "Returns the product" in text and "| times | int, optional, default=2 |" in text
    assert "`FCompute<cpu>`" in text or "FCompute<cpu>" in text
    assert (out / "op" / "docs_user.md").exists()
    index = (out / "index.md").read_text()
    pages = list(out.rglob("*/*.md"))
    assert f"{len(pages)} pages" in done.stdout
    for name in ("relu", "docs_multiply", "docs_user"):
        assert f"[{name}](op/{name}.md)" in index
    assert all(f"({p.relative_to(out).as_posix()})" in index for p in pages)


class DocumentedInput(mx.OperatorProperty):
    """Returns the input."""

    argument_docs = {"data": "What is returned."}

    def infer_shape(self, in_shape):
        return in_shape, [in_shape[0]], []


def by_subclassing():
    mx.operator.register("docs_of_inputs_1")(DocumentedInput)
    return "docs_of_inputs_1"


def by_decorator():
    mx.op.op("docs_of_inputs_2", argument_docs={"data": "What is returned."})(lambda x: x)
    return "docs_of_inputs_2"


def by_definition():
    mx.op.define(
        "docs_of_inputs_3",
        inputs="data, more*2",
        argument_docs={"data": "What is returned."},
        infer=lambda ctx: ctx.out("out").like(ctx.inp("data")),
    )
    mx.op.kernel("docs_of_inputs_3")(lambda ctx: None)
    return "docs_of_inputs_3"


def by_attributes():
    entry = mx.op.register("docs_of_inputs_4").set_attr("FInferShape", mx.op.ElemwiseShape(1, 1))
    entry.add_argument("data", "NDArray-or-Symbol", "What is returned.")
    entry.set_attr("FCompute<cpu>", lambda attrs, ctx, inputs, req, outputs: None)
    return "docs_of_inputs_4"


@pytest.mark.parametrize("define", [by_subclassing, by_decorator, by_definition, by_attributes])
def test_inputs_are_described(define):
    name = define()
    assert "data : NDArray\n    What is returned.\n" in getattr(mx.nd, name).__doc__
    assert "data : Symbol\n    What is returned.\n" in getattr(mx.sym, name).__doc__
    assert not re.search(r"\n +\n", getattr(mx.nd, name).__doc__)


@pytest.fixture(scope="module")
def keyword_named():
    """An operator with inputs that are named like keywords of Python."""
    mx.op.define(
        "docs_keywords",
        inputs="x, in, is, y",
        attrs={"in_": op.Attr(int, 1), "beta": op.Attr(float, 1.0)},
        infer=lambda ctx: ctx.out("out").like(ctx.inp("in")),
    )
    mx.op.kernel("docs_keywords")(lambda ctx: None)
    return "docs_keywords"


def test_stubs_take_inputs_named_like_keywords_by_position_only(keyword_named):
    text = docs.stubs._function(keyword_named, keyword_named, "NDArray")
    arguments = ast.parse(text).body[0].args
    assert [a.arg for a in arguments.posonlyargs] == ["x", "in__", "is_"]
    assert [a.arg for a in arguments.args][:3] == ["y", "in_", "beta"]


@pytest.mark.parametrize("namespace", [mx.nd, mx.sym])
def test_signatures_take_inputs_named_like_keywords_by_position_only(keyword_named, namespace):
    parameters = inspect.signature(getattr(namespace, keyword_named)).parameters.values()
    only = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]
    assert only == ["x", "in__", "is_"]
    assert [p.name for p in parameters][3:6] == ["y", "in_", "beta"]
    if namespace is mx.nd:
        assert "docs_keywords(x=None, in__=None, is_=None, /, y=None" in docs.page(keyword_named)


def test_an_array_of_another_name_is_told_the_names_of_the_inputs(keyword_named):
    with pytest.raises(TypeError, match="'data', its inputs are 'x', 'in', 'is', 'y'"):
        getattr(mx.nd, keyword_named)(data=mx.nd.ones((1,)))


def test_descriptions_of_inputs_that_there_are_not_are_refused():
    with pytest.raises(mx.MXNetError, match="unknown argument 'dat': did you mean 'data'"):
        mx.op.op("docs_of_inputs_5", argument_docs={"dat": "?"})(lambda x: x)
    with pytest.raises(mx.MXNetError, match="invalid argument_docs 3: expected a dict of strings"):
        mx.op.define("docs_of_inputs_6", inputs="in", infer=print, argument_docs=3)


def test_a_page_names_all_inputs_and_parameters():
    for name in EXISTING:
        text = docs.page(name)
        assert call_of(name) in text
        for key in [*EXISTING[name]["arrays"], *(p for p, _ in EXISTING[name]["params"])]:
            assert f"| {key} |" in text, f"{name}: {key}"


STUBS = sorted(p for m in ("ndarray", "symbol") for p in (PACKAGE / m).glob("*.pyi"))


@pytest.mark.process
@pytest.mark.parametrize("path", STUBS, ids=lambda p: f"{p.parent.name}.{p.stem}")
def test_stubs_are_those_of_the_registry(path):
    """If it fails: python -m rsnet.docs --stubs python/rsnet"""
    text = path.read_text()
    place = f"stub({path.parent.name!r}, {path.stem!r})"
    call = "methods_stub()" if path.stem == "_fluent" else place
    code = f"from rsnet.docs import stubs; print(stubs.{call}, end='')"
    fresh = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert text == fresh.stdout
    functions = {f.name: f for f in ast.parse(text).body if isinstance(f, ast.FunctionDef)}
    module = mx.nd if path.parent.name == "ndarray" else mx.sym
    for name, f in functions.items():
        declared = {a.arg for a in [*f.args.args, *f.args.kwonlyargs]}
        real = getattr(getattr(module, path.stem), name)
        shown = set(inspect.signature(real).parameters) - {"kwargs", "data", "attr", "num_args"}
        assert shown - declared <= {"out"}, f"{name} lacks {shown - declared}"


def test_introspection():
    names = mx.operator.get_all_registered_operators()
    assert {"relu", "FullyConnected", "Custom"} <= set(names) and names == sorted(names)
    groups = mx.operator.get_all_registered_operators_grouped()
    assert "_npx_relu" in groups["relu"]
    count, arguments, types = mx.operator.get_operator_arguments("FullyConnected")
    assert count == len(arguments) == len(types)
    assert arguments[:3] == ["data", "weight", "bias"] and types[3] == "int, required"
    with pytest.raises(KeyError):
        mx.operator.get_operator_arguments("no_such")
    on_host, on_device = op.kernels("relu")[:2]
    assert on_host == ("cpu", "device == cpu", 0) and on_device[0] == "cuda"
    first = op.why("relu", mx.nd.ones((1,))).splitlines()[0]
    assert first.endswith("matches: device == cpu [true]")

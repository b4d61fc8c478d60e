"""The guide to writing operators: every block of code in it runs, in order."""

import contextlib
import doctest
import inspect
import io
import re

import pytest
from places import DOCS

import rsnet as mx
from rsnet import autograd, op, operator, parameter, user_op

GUIDE = DOCS / "write_an_operator.md"


@pytest.fixture(scope="module", autouse=True)
def printed():
    """What the guide's code prints; running it registers its operators."""
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(blocks) >= 6
    scope, out = {"__name__": "guide"}, io.StringIO()
    with contextlib.redirect_stdout(out):
        for block in blocks:
            exec(compile(block, str(GUIDE), "exec"), scope)
    return out.getvalue()


def test_the_code_of_the_guide_runs(printed):
    assert "matches: (device == cpu [true] & dtype(out) in {float32, float64} [true])" in printed


@pytest.mark.parametrize(
    "module", [autograd, op, operator, parameter, user_op], ids=lambda module: module.__name__
)
def test_examples_in_docstrings(module):
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner()
    tests = finder.find(module)
    for name in module.__all__:  # wherever it is implemented
        thing = getattr(module, name)
        if getattr(thing, "__module__", None) == module.__name__:
            tests += finder.find(thing, name, module=False, globs=vars(module).copy())
    for test in {test.name.removeprefix(f"{module.__name__}."): test for test in tests}.values():
        runner.run(test)
    assert runner.summarize().failed == 0 and runner.tries > 0


@pytest.mark.parametrize(
    "cls", [mx.OperatorProperty, mx.operator.CustomOpProp, mx.Operator, mx.operator.CustomOp,
            user_op.InferContext, user_op.ComputeContext]
)  # fmt: skip
def test_every_method_of_the_classes_for_authors_is_documented(cls):
    for name, member in vars(cls).items():
        if not name.startswith("_") and (callable(member) or isinstance(member, property)):
            assert inspect.getdoc(member), f"{cls.__name__}.{name}"


def test_three_ways_in_one_network():
    x = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=8, name="fc1")
    x = mx.sym.guide_power(mx.sym.guide_relu(mx.sym.guide_scale(x, factor=2)), times=1)
    x = mx.sym.FullyConnected(x, num_hidden=2, name="fc2")
    net = mx.sym.SoftmaxOutput(x, name="softmax")
    exe = net.simple_bind(mx.cpu(), data=(32, 4), softmax_label=(32,))
    data = mx.nd.random.normal(shape=(32, 4))
    label = data.asnumpy()[:, 0] > 0
    exe.arg_dict["data"][:] = data
    exe.arg_dict["softmax_label"][:] = label.astype("float32")
    for name in ("fc1_weight", "fc2_weight"):
        exe.arg_dict[name][:] = mx.nd.random.normal(0, 0.3, shape=exe.arg_dict[name].shape)
    for _ in range(60):
        exe.forward(is_train=True)
        exe.backward()
        for name, grad in exe.grad_dict.items():
            if name.startswith("fc"):
                exe.arg_dict[name][:] -= 0.02 * grad
    right = (exe.outputs[0].asnumpy().argmax(1) == label).mean()
    assert right > 0.95

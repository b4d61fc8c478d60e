"""Errors about bad arguments have one form: ``place: invalid what got: expected ...``."""

import json
import re
import warnings

import numpy as np
import pytest

import rsnet as mx
from rsnet import engine, nd, op, sym

FORM = re.compile(
    r"^((?P<place>[^:\n]+): )?invalid (?P<what>.+?) (?P<got>\S.*?): expected (?P<expected>.+)"
)


def nothing(*_):
    pass


def bound():
    net = sym.tanh(sym.square(sym.Variable("a")))
    executor = net.simple_bind(mx.cpu(), a=(2,))
    executor.forward(is_train=True)
    return executor


def made_by_subclassing(**methods):
    """Calls an operator whose property has these methods."""
    usual = {"infer_shape": lambda self, shapes: (shapes, shapes, [])}
    made = type("Property", (mx.OperatorProperty,), usual | methods)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the operator is registered again
        mx.operator.register("t_form_subclassed")(made)
    nd.t_form_subclassed(nd.ones((1,))).wait_to_read()


def graph(**fields):
    """A symbol file with these fields replaced."""
    stored = json.loads(sym.tanh(sym.Variable("a"), name="t").tojson())
    stored.update(fields)
    return json.dumps(stored)


def node(**fields):
    """A symbol file with these fields of its second node replaced."""
    stored = json.loads(sym.tanh(sym.Variable("a"), name="t").tojson())
    stored["nodes"][1].update(fields)
    return json.dumps(stored)


# A call, the class of its error, and what the message names: place, thing, value, and a part of
# what was expected.
CALLS = {
    "function": (lambda: engine.push_sync(3), TypeError, ("", "fn", "3", "callable")),
    "context": (lambda: engine.push_sync(nothing, "cpu"), TypeError,
        ("", "ctx", "'cpu'", "Context")),
    "list of variables": (
        lambda: engine.push_sync(nothing, const_vars=3), TypeError,
        ("", "const_vars", "3", "a list of engine variables"),
    ),
    "variable": (
        lambda: engine.push_sync(nothing, mutate_vars=[3]), TypeError,
        ("", "item of mutate_vars", "3", "an engine variable"),
    ),
    "property": (
        lambda: engine.push_sync(nothing, prop="urgent"), ValueError,
        ("", "prop", "'urgent'", "one of: normal"),
    ),
    "priority": (
        lambda: engine.push_sync(nothing, priority=2**40), ValueError,
        ("", "priority", "1099511627776", "-2147483648 to 2147483647"),
    ),
    "limit of a wait": (
        lambda: engine.set_wait_timeout(-1), ValueError, ("", "seconds", "-1", "0 to 1e19"),
    ),
    "bulk size": (
        lambda: engine.set_bulk_size(-2), ValueError, ("", "size", "-2", "at least 0"),
    ),
    "number of variables": (
        lambda: engine.push_sync(
            nothing, const_vars=[engine.new_variable() for _ in range(65_536)], name="many"
        ),
        mx.MXNetError, ("operation 'many'", "number of variables", "65536", "at most 65535"),
    ),
    "out": (
        lambda: nd.relu(nd.ones((2,)), out=3), TypeError,
        ("relu", "out", "3", "an NDArray or a list of NDArrays"),
    ),
    "capsule": (lambda: nd.from_dlpack(3), TypeError,
        ("", "DLPack source", "3", "a DLPack capsule")),
    "byte order": (
        lambda: nd.from_numpy(np.ones(2, ">f4")), TypeError,
        ("", "dtype of a NumPy array", "dtype('>f4')", "the byte order of this machine"),
    ),
    "step": (
        lambda: nd._internal._arange(start=0, stop=3, step=0), ValueError,
        ("_arange", "step", "'0'", "0 to 3"),
    ),
    "repetitions": (
        lambda: nd.tile(nd.ones((2,)), reps=(-1,)), ValueError,
        ("tile", "number in reps", "'-1'", "at least 0"),
    ),
    "repeats": (
        lambda: nd.repeat(nd.ones((2,)), repeats=-1), ValueError,
        ("repeat", "repeats", "'-1'", "at least 0"),
    ),
    "parameter of a distribution": (
        lambda: nd.random.gamma(alpha=-1).wait_to_read(), ValueError,
        ("_random_gamma", "alpha", "'-1'", "more than 0"),
    ),
    "head gradients": (
        lambda: bound().backward([nd.ones((2,)), nd.ones((2,))]), ValueError,
        ("", "number of head gradients", "'2'", "at most 1"),
    ),
    "partial pass": (
        lambda: bound().partial_forward(True, 1), ValueError,
        ("partial_forward", "step", "'1'", "0, the next one"),
    ),
    "column of statistics": (
        lambda: mx.profiler.dumps(sort_by="size"), ValueError,
        ("", "sort_by", "'size'", "one of: total"),
    ),
    "symbol file": (lambda: sym.load_json("[]"), ValueError,
        ("symbol file", "content", "[]", "an object")),
    "nodes": (
        lambda: sym.load_json(graph(nodes=3)), ValueError,
        ("symbol file", "nodes", "3", "an array"),
    ),
    "field of a node": (
        lambda: sym.load_json(node(colour="red")), ValueError,
        ("node 1", "field", "'colour'", "one of: op"),
    ),
    "name of a node": (
        lambda: sym.load_json(node(name=3)), ValueError, ("node 1", "name", "3", "a string"),
    ),
    "entry": (
        lambda: sym.load_json(node(inputs=[3])), ValueError,
        ("node 1", "entry", "3", "[node, output, version]"),
    ),
    "number of inputs": (
        lambda: sym.load_json(node(inputs=[[0, 0, 0], [0, 0, 0]])), ValueError,
        ("tanh 't'", "number of inputs", "'2'", "1"),
    ),
    "request of a binding": (
        lambda: sym.Variable("a").bind(mx.cpu(), [nd.ones((1,))], grad_req="zz"), ValueError,
        ("", "grad_req", "'zz' of 'a'", "one of: null"),
    ),
    "limit of memory": (
        lambda: sym.Variable("a").memory_plan(memory_limit="x", a=(2,)), ValueError,
        ("", "memory_limit", "'x'", "bytes"),
    ),
    "attribute": (
        lambda: sym.Variable("x", mine="1"), ValueError,
        ("", "attribute", "'mine' of variable 'x'",
         "a name that begins and ends with two underscores"),
    ),
    "attribute of a scope": (
        lambda: mx.AttrScope(a=1), ValueError, ("", "attribute", "'a' 1", "a string"),
    ),
    "scratch memory": (
        lambda: op.kernel("t_form", tmp=-1), mx.MXNetError,
        ("kernel of t_form", "tmp", "-1", "bytes, 0 to"),
    ),
    "element type": (
        lambda: nd.array([1], dtype="real"), TypeError, ("", "dtype", "'real'", "one of: float32"),
    ),
    "values": (
        lambda: nd.array([[1], [2, 3]]), TypeError,
        ("", "source_array", "[[1], [2, 3]]", "nested lists of numbers of one length"),
    ),
    "cached symbol": (lambda: nd.CachedOp(3), TypeError, ("CachedOp", "sym", "3", "a Symbol")),
    # Operators written in Python.
    "name of an operator": (
        lambda: op.register(3), TypeError, ("register", "name of an operator", "3", "a string"),
    ),
    "name that is not an identifier": (
        lambda: op.op("a b"), ValueError,
        ("op", "name of an operator", "'a b'", "the name of a function"),
    ),
    "class of an operator": (
        lambda: mx.operator.register("t_form")(3), TypeError,
        ("register('t_form')", "class", "3", "a subclass of OperatorProperty or CustomOpProp"),
    ),
    "answer of a property": (
        lambda: made_by_subclassing(infer_shape=lambda self, shapes: 5), mx.MXNetError,
        ("t_form_subclassed", "result of infer_shape", "5", "(inputs, outputs, auxiliary states)"),
    ),
    "names of a property": (
        lambda: made_by_subclassing(list_outputs=lambda self: "y"), mx.MXNetError,
        ("t_form_subclassed", "result of list_outputs", "'y'", "a list of names"),
    ),
    "operator of a property": (
        lambda: made_by_subclassing(create_operator=lambda self, ctx: 5), mx.MXNetError,
        ("t_form_subclassed", "result of create_operator", "5", "an object with forward"),
    ),
    "function of an attribute": (
        lambda: op.register("t_form_record").set_attr("FGradient", 3), TypeError,
        ("t_form_record", "attribute FGradient", "3", "a function"),
    ),
    "number of inputs of a record": (
        lambda: op.register("t_form_record").set_num_inputs(-1), mx.MXNetError,
        ("t_form_record", "number of inputs", "-1", "0 to 65535"),
    ),
    "parser": (
        lambda: op.register("t_form_record").set_attr_parser(3), TypeError,
        ("t_form_record", "parser", "3", "a Parameter class or a function"),
    ),
    "views": (
        lambda: op.register("t_form_record", views="jax"), ValueError,
        ("t_form_record", "views", "'jax'", "one of: ndarray, numpy, cupy"),
    ),
    "arguments of a user operator": (
        lambda: op.define("t_form_user", inputs=3, infer=nothing), mx.MXNetError,
        ("t_form_user", "inputs", "3", "a string or a list of strings"),
    ),
    "inference of a user operator": (
        lambda: op.define("t_form_user", inputs="x"), mx.MXNetError,
        ("t_form_user", "infer", "None", "a function"),
    ),
    "default of an attribute": (
        lambda: op.Attr(int, "a"), mx.MXNetError,
        ("Attr", "attribute 'default'", "'a'", "int64"),
    ),
    "condition of a kernel": (
        lambda: op.kernel("t_form", where=3), mx.MXNetError,
        ("kernel of t_form", "where", "3", "a condition"),
    ),
    "operand of a condition": (
        lambda: op.dtype("x") == "float31", mx.MXNetError,
        ("kernel condition", "operand for dtype of 'x'", "'float31'", "a type"),
    ),
    "gradient": (
        lambda: op.grad("t_form")(3), mx.MXNetError,
        ("gradient of t_form", "gradient", "3", "a function"),
    ),
    "request of an output": (
        lambda: op.assign(nd.ones((1,)), "store", 1), mx.MXNetError,
        ("assign", "req", "'store'", "one of: null, write"),
    ),
    "range": (lambda: op.launch(nothing, -1), mx.MXNetError,
        ("launch", "n", "-1", "an integer of 0")),
    "name of a built operator": (
        lambda: mx.user_op_builder(""), mx.MXNetError,
        ("user_op_builder", "name", "''", "a string"),
    ),
    # Binding.
    "device of a binding": (
        lambda: sym.Variable("a").bind(3, []), TypeError, ("", "ctx", "3", "a Context"),
    ),
    "arrays of a binding": (
        lambda: sym.Variable("a").bind(mx.cpu(), 3), TypeError,
        ("", "args", "3", "a list of NDArrays"),
    ),
    "number of arrays": (
        lambda: sym.Variable("a").bind(mx.cpu(), []), ValueError,
        ("", "length of args", "0", "1: ['a']"),
    ),
    "array of a binding": (
        lambda: sym.Variable("a").bind(mx.cpu(), [3]), TypeError,
        ("", "item 'a' of args", "3", "an NDArray"),
    ),
    "kind of a request": (
        lambda: sym.Variable("a").simple_bind(mx.cpu(), grad_req=3, a=(2,)), TypeError,
        ("", "grad_req", "3", "a string, list or dict"),
    ),
    "groups": (
        lambda: sym.Variable("a").simple_bind(mx.cpu(), group2ctx=3, a=(2,)), TypeError,
        ("", "group2ctx", "3", "a dict of names to Contexts"),
    ),
    "head gradient": (
        lambda: bound().backward([3]), TypeError, ("", "item 0 of out_grads", "3", "an NDArray"),
    ),
    # Training.
    "metric": (lambda: mx.metric.create(3), TypeError,
        ("", "metric", "3", "an EvalMetric, a name")),
    "labels": (
        lambda: mx.metric.create("acc").update([nd.ones((2,))], [nd.ones((3, 2))]), ValueError,
        ("", "number of labels", "2", "3, as of the predictions"),
    ),
    "name of a store": (lambda: mx.kv.create(3), TypeError, ("", "name", "3", "a string")),
    "value of a key": (
        lambda: mx.kv.create("local").init("a", 3), TypeError,
        ("init", "value of key 'a'", "3", "an NDArray"),
    ),
    "optimizer of a store": (
        lambda: mx.kv.create("local").set_optimizer(3), TypeError,
        ("", "optimizer", "3", "an Optimizer"),
    ),
    "batch size": (
        lambda: mx.io.NDArrayIter(np.ones((2, 2)), batch_size=0), ValueError,
        ("", "batch_size", "0", "at least 1"),
    ),
    "rows": (
        lambda: mx.io.NDArrayIter(np.ones((2, 2)), np.ones(3), batch_size=1), ValueError,
        ("", "numbers of rows", "{'data': 2, 'softmax_label': 3}", "one number for all"),
    ),
    "data": (
        lambda: mx.io.NDArrayIter(np.float32(3), batch_size=1), TypeError,
        ("", "data", "np.float32(3.0)" if np.__version__ >= "2" else "3.0", "an array of rows"),
    ),
    "flag of a record file": (
        lambda: mx.recordio.MXRecordIO("x", "q"), ValueError, ("", "flag", "'q'", "'r' or 'w'"),
    ),
    "arrays of a file": (lambda: nd.save("x", 3), ValueError, ("", "data", "3", "an NDArray")),
    "steps of a schedule": (
        lambda: mx.lr_scheduler.MultiFactorScheduler([3, 1]), ValueError,
        ("", "step", "[3, 1]", "an increasing list"),
    ),
    "name of an optimizer": (
        lambda: mx.optimizer.create(3), TypeError, ("", "name", "3", "a string"),
    ),
    "updates": (
        lambda: mx.lr_scheduler.PolyScheduler(max_update=0), ValueError,
        ("", "max_update", "0", "at least 1"),
    ),
    "last batch": (
        lambda: mx.gluon.data.BatchSampler([1], 1, "x"), ValueError,
        ("", "last_batch", "'x'", "one of: keep"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CALLS)
def test_a_bad_argument_is_named_with_value_and_expectation(what):
    call, kind, (place, thing, got, expected) = CALLS[what]
    with pytest.raises(kind) as raised:
        call()
    text = str(raised.value).split("\nraised in")[0]
    assert FORM.match(text), text
    assert text.startswith(f"{place}: " if place else "invalid "), text
    assert f"invalid {thing} {got}: expected " in text, text
    assert expected in text.partition(": expected ")[2], text

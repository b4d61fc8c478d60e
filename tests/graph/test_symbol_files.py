"""Symbol files: gradients, deep graphs, operators that are missing, damaged and hostile text."""

import copy
import json
import os
import pickle
import random
import subprocess

import numpy as np
import pytest
from processes import printed

import rsnet as mx
from rsnet.base import MXNetError

sym, nd = mx.sym, mx.nd
MXNET = os.environ.get("MXNET_PYTHON")


def mlp():
    net = sym.FullyConnected(sym.Variable("data"), name="fc1", num_hidden=8)
    net = sym.BatchNorm(net, name="bn", fix_gamma=False)
    net = sym.Activation(net, name="relu1", act_type="relu")
    net = sym.FullyConnected(net, name="fc2", num_hidden=3)
    return sym.SoftmaxOutput(net, name="softmax")


def file_of(nodes, head, arg_nodes=(0,)):
    return json.dumps(
        {
            "nodes": nodes,
            "arg_nodes": list(arg_nodes),
            "heads": [head],
            "attrs": {"mxnet_version": ["int", 10901]},
        }
    )


VARIABLE = {"op": "null", "name": "x", "inputs": []}


# ---- names and gradients -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a$b", "ü λ", "a/b c", '"q"', "\\", "a\nb", "$", "x:0", "<&>"])
def test_any_character_in_names(name):
    net = sym.Activation(sym.Variable(name), act_type="relu", name=f"{name}_r", attr={"k$": "v$"})
    assert net.attr_dict()[f"{name}_r"]["k$"] == "v$"
    again = sym.load_json(net.tojson())
    assert again.list_arguments() == [name] and again.tojson() == net.tojson()
    assert pickle.loads(pickle.dumps(net)).list_outputs() == [f"{name}_r_output"]
    exe = net.simple_bind(mx.cpu(), **{name: (2,)})
    assert list(exe.arg_dict) == [name]
    assert exe.forward(**{name: nd.array([-1, 2])})[0].asnumpy().tolist() == [0, 2]


def test_gradients_are_saved_and_loaded():
    grad = mlp().grad(["fc1_weight", "data"])
    again = sym.load_json(grad.tojson())
    assert again.tojson() == grad.tojson()
    assert again.list_arguments() == grad.list_arguments()
    shapes = dict(zip(grad.list_arguments(), grad.infer_shape(data=(4, 5))[0], strict=True))
    rng = np.random.default_rng(0)
    values = {name: nd.array(rng.uniform(0.1, 1, shape)) for name, shape in shapes.items()}
    values |= {"bn_moving_mean": nd.zeros((8,)), "bn_moving_var": nd.ones((8,))}
    found = [[o.asnumpy() for o in net.eval(**values)] for net in (grad, again)]
    assert [g.shape for g in found[0]] == [(8, 5), (4, 5)]
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_eval_takes_auxiliary_states_by_name():
    net = sym.BatchNorm(sym.Variable("x"), name="bn", fix_gamma=False, eps=0)
    values = {"bn_gamma": nd.ones((2,)), "bn_beta": nd.zeros((2,)), "bn_moving_mean": nd.ones((2,))}
    got = net.eval(x=nd.array([[3.0, 5.0]]), bn_moving_var=nd.array([4.0, 16.0]), **values)
    np.testing.assert_allclose(got[0].asnumpy(), [[1, 1]], rtol=1e-5)
    with pytest.raises(ValueError, match="bn_moving_var"):
        net.eval(x=nd.array([[3.0, 5.0]]), **values)


# ---- operators that are missing ----------------------------------------------------------------


def test_unknown_operators_are_reported_together():
    nodes = [
        VARIABLE,
        {"op": "Zap", "name": "first", "inputs": [[0, 0, 0]]},
        {"op": "relu", "name": "r", "inputs": [[1, 0, 0]]},
        {"op": "Zip", "name": "second", "inputs": [[2, 0, 0]]},
    ]
    with pytest.raises(MXNetError) as caught:
        sym.load_json(file_of(nodes, [3, 0, 0]))
    for part in ("first", "Zap", "second", "Zip"):
        assert part in str(caught.value)


def test_a_custom_operator_that_is_missing_fails_at_bind_only(tmp_path):
    nodes = [
        VARIABLE,
        {"op": "Custom", "name": "c", "attrs": {"op_type": "missing_one"}, "inputs": [[0, 0, 0]]},
        {"op": "relu", "name": "r", "inputs": [[1, 0, 0]]},
    ]
    net = sym.load_json(file_of(nodes, [2, 0, 0]))
    assert net.list_arguments() == ["x"] and "missing_one" in net.debug_str()
    assert net.get_internals().list_outputs() == ["x", "c_output", "r_output"]
    assert net.get_internals()["c_output"].list_arguments() == ["x"]
    assert net(x=sym.Variable("y")).list_arguments() == ["y"]
    path = str(tmp_path / "net-symbol.json")
    copy.deepcopy(net).save(path)
    assert sym.load(path).tojson() == net.tojson()
    for bind in (
        lambda: net.simple_bind(mx.cpu(), x=(2,)),
        lambda: net.bind(mx.cpu(), [nd.ones((2,))]),
    ):
        with pytest.raises(MXNetError, match="missing_one"):
            bind()


# ---- casts of mixed precision -------------------------------------------------------------------


def with_casts():
    x = sym.amp_cast(sym.Variable("x"), dtype="float16", name="low")
    x = sym.exp(sym.amp_cast(x, dtype="float32", name="high"), name="exp")
    return sym.Group(
        [sym._mul_scalar(x, scalar=2, name="twice"), sym.amp_cast(x, dtype="float16", name="last")]
    )


def test_files_are_written_without_amp_casts(tmp_path):
    net = with_casts()
    kept, plain = net.tojson(remove_amp_cast=False), net.tojson()
    assert kept.count('"amp_cast"') == 3 and plain.count('"amp_cast"') == 1  # an output stays
    assert sym.load_json(kept).list_outputs() == net.list_outputs()
    bare = sym.load_json(plain)
    assert bare.list_outputs() == net.list_outputs() == ["twice_output", "last_output"]
    outputs = bare.eval(x=nd.ones((3,)))
    np.testing.assert_allclose(outputs[0].asnumpy(), np.full(3, 2 * np.e), rtol=1e-6)
    assert [o.dtype for o in outputs] == [np.float32, np.float16]
    pair = sym.amp_multicast(sym.var("a"), sym.var("b"), num_outputs=2)
    types = sym.load_json(pair.tojson()).infer_type(a="float16", b="float32")[1]
    assert types == pair.infer_type(a="float16", b="float32")[1]
    net.save(str(tmp_path / "plain.json"))
    net.save(str(tmp_path / "kept.json"), remove_amp_cast=False)
    assert (tmp_path / "plain.json").read_text() == plain
    assert (tmp_path / "kept.json").read_text() == kept
    for remove, text in ((True, plain), (False, kept)):
        mx.model.save_checkpoint(str(tmp_path / "net"), 1, net, {}, {}, remove_amp_cast=remove)
        assert (tmp_path / "net-symbol.json").read_text() == text
    assert pickle.loads(pickle.dumps(net)).tojson(remove_amp_cast=False) == kept
    assert mlp().tojson() == mlp().tojson(remove_amp_cast=False)


# ---- deep and hostile --------------------------------------------------------------------------


@pytest.mark.slow
def test_a_chain_of_many_nodes():
    count = 100_000
    nodes = [VARIABLE]
    for i in range(count):
        nodes.append(
            {
                "op": "_plus_scalar",
                "name": f"n{i}",
                "attrs": {"scalar": "1"},
                "inputs": [[i, 0, 0]],
            }
        )
    net = sym.load_json(file_of(nodes, [count, 0, 0]))
    assert net.infer_shape(x=(2,))[1] == [(2,)]
    assert len(net.get_internals().list_outputs()) == count + 1
    again = pickle.loads(pickle.dumps(net))
    assert again.list_arguments() == ["x"] and net.debug_str().count("Op:") == count
    assert net(x=sym.Variable("y")).list_arguments() == ["y"]
    exe = net.simple_bind(mx.cpu(), x=(2,))
    assert exe.forward(is_train=True)[0].asnumpy().tolist() == [count, count]
    exe.backward(nd.ones((2,)))
    assert exe.grad_dict["x"].asnumpy().tolist() == [1, 1]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "expected JSON: EOF"),
        ("{}", 'Missing field "nodes"'),
        ("[1]", r"invalid content \[1\]: expected an object"),
        ('{"nodes": 3}', 'Missing field "arg_nodes"'),
        ("{" * 1000, "expected JSON: key must be a string"),
        ("\x00", "expected JSON: expected value"),
    ],
)
def test_corrupt_json_is_an_error(text, wrong):
    with pytest.raises(MXNetError, match=wrong):
        sym.load_json(text)


def test_deep_nesting_and_cycles_are_errors():
    for text in ("[" * 100_000, '{"nodes":' * 100_000, '{"nodes":[' + "[" * 100_000):
        with pytest.raises(MXNetError, match="expected at most 1024 levels of brackets"):
            sym.load_json(text)
    nodes = [VARIABLE]
    for i in range(20_000):
        nodes.append({"op": "relu", "name": f"n{i}", "inputs": [[i, 0, 0]]})
    nodes[1]["inputs"] = [[20_000, 0, 0]]
    with pytest.raises(MXNetError, match="invalid inputs of 'n0'"):
        sym.load_json(file_of(nodes, [20_000, 0, 0]))


HUGE = [
    ("SliceChannel", {"num_outputs": "1000000000"}, 0, "num_outputs '1000000000': expected 1 to"),
    ("SliceChannel", {"num_outputs": "-1"}, 0, "num_outputs '-1': expected 1 to"),
    ("Concat", {"num_args": "1000000000"}, 0, "num_args should be smaller equal to 65535"),
    ("add_n", {"num_args": "2000000000"}, 0, "num_args should be smaller equal to 65535"),
    ("_split_v2", {"sections": "1000000000", "indices": "()"}, 0, "sections .* at most 65535"),
    (
        "UpSampling",
        {"num_args": "1000000000", "scale": "2", "sample_type": "nearest"},
        0,
        "num_args should be smaller equal to 65535",
    ),
    ("Custom", {"op_type": "q"}, 4294967295, "output 4294967295 of 'n': expected less than 4096"),
    ("relu", {}, 4294967295, "output 4294967295 of 'n': expected less than 1,"),
]


@pytest.mark.parametrize(("op", "attrs", "output", "text"), HUGE, ids=lambda v: str(v)[:40])
def test_counts_beyond_reason_are_errors(op, attrs, output, text):
    node = {"op": op, "name": "n", "attrs": attrs, "inputs": [[0, 0, 0]]}
    with pytest.raises(MXNetError, match=text):
        sym.load_json(file_of([VARIABLE, node], [1, output, 0]))


VALUES = [
    None,
    -1,
    2**63,
    2**31,
    1e308,
    "",
    [],
    {},
    "x" * 50,
    True,
    [[2**40, 0, 0]],
    0,
    "1000000000",
]


def mutate(value, rng):
    """Replaces something somewhere inside."""
    while isinstance(value, (dict, list)) and value:
        key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
        if rng.random() < 0.4:
            value[key] = rng.choice(VALUES)
            return
        value = value[key]


def damaged(text, rng):
    raw, way = bytearray(text.encode()), rng.random()
    if way < 0.3:
        for _ in range(rng.randint(1, 4)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        return raw.decode("utf8", "replace")
    if way < 0.8:
        data = json.loads(text)
        mutate(data, rng)
        return json.dumps(data)
    begin, end = sorted((rng.randrange(len(raw)), rng.randrange(len(raw))))
    return (raw[:begin] + raw[end:]).decode("utf8", "replace")


def read_damaged(seed, count):
    """Whatever a file holds: an error of ours, or a symbol that can be looked at and planned."""
    text, rng, refused = mlp().tojson(), random.Random(seed), 0
    for _ in range(count):
        try:
            net = sym.load_json(damaged(text, rng))
        except MXNetError:
            refused += 1
            continue
        net.debug_str()
        assert sym.load_json(net.tojson()).list_inputs() == net.list_inputs()
        try:
            net.infer_shape_partial(data=(4, 6))
            net.memory_plan(data=(4, 6))
        except MXNetError:
            refused += 1
    return refused


def test_damaged_files_give_errors_or_symbols():
    assert read_damaged(1, 600) > 300


CAPPED = """
import re, resource, sys
sys.path.insert(0, {here!r})
from test_symbol_files import HUGE, VARIABLE, file_of, mx, read_damaged, sym

used = int(re.search(r"VmSize:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) << 10
resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), resource.RLIM_INFINITY))
try:
    bytearray(512 << 20)
    print("there is no cap")
except MemoryError:
    pass
assert read_damaged(2, 300) > 150
for op, attrs, output, text in HUGE:
    node = {{"op": op, "name": "n", "attrs": attrs, "inputs": [[0, 0, 0]]}}
    try:
        sym.load_json(file_of([VARIABLE, node], [1, output, 0]))
        print(op, "was read")
    except mx.MXNetError:
        pass
print("done")
"""


@pytest.mark.process
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads its size from /proc")
def test_damaged_files_take_little_memory():
    """A process that may take 256 MiB more than it has reads them all."""
    here = os.path.dirname(os.path.abspath(__file__))
    assert printed(CAPPED.format(here=here)) == "done"


# ---- MXNet itself ------------------------------------------------------------------------------

THEIRS = """
import os, sys
os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE"
import mxnet as mx, numpy as np
folder = sys.argv[1]
net = mx.sym.load(folder + "/net-symbol.json")
arrays = mx.nd.load(folder + "/net-0000.params")
args = {n: arrays["arg:" + n] for n in net.list_arguments()}
aux = {n: arrays["aux:" + n] for n in net.list_auxiliary_states()}
np.save(folder + "/out.npy", net.bind(mx.cpu(), args, aux_states=aux).forward()[0].asnumpy())
net.save(folder + "/back-symbol.json")
mx.nd.save(folder + "/back-0000.params", arrays)
"""


@pytest.mark.process
@pytest.mark.skipif(not MXNET, reason="set MXNET_PYTHON to a Python that has MXNet 1.9")
def test_files_pass_through_mxnet_unchanged(tmp_path):
    net = mlp()
    exe = net.simple_bind(mx.cpu(), grad_req="null", data=(4, 6))
    rng = np.random.default_rng(0)
    arrays = {}
    for kind, own in (("arg", exe.arg_dict), ("aux", exe.aux_dict)):
        for name, value in own.items():
            value[:] = rng.uniform(0.5, 1, value.shape)
            arrays[f"{kind}:{name}"] = value
    net.save(str(tmp_path / "net-symbol.json"))
    nd.save(str(tmp_path / "net-0000.params"), arrays)
    subprocess.run([MXNET, "-W", "ignore", "-c", THEIRS, str(tmp_path)], check=True, timeout=120)
    expected = exe.forward()[0].asnumpy()
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, rtol=1e-5)
    for ours, back in (
        ("net-symbol.json", "back-symbol.json"),
        ("net-0000.params", "back-0000.params"),
    ):
        assert (tmp_path / ours).read_bytes() == (tmp_path / back).read_bytes()
    assert sym.load(str(tmp_path / "back-symbol.json")).tojson() == net.tojson()


@pytest.mark.parametrize(
    ("written", "read", "outputs"),
    [("(0, 3)", "(-1, 3)", [(-1, 3)]), ("()", None, [None]), ("(2, 3)", "(2, 3)", [(2, 3)])],
)
def test_unknown_extents_of_old_files_stay_unknown_with_np_shape(written, read, outputs):
    node = {"op": "null", "name": "a", "attrs": {"__shape__": written}, "inputs": []}
    file = {
        "nodes": [node], "arg_nodes": [0], "node_row_ptr": [0, 1], "heads": [[0, 0, 0]],
        "attrs": {"mxnet_version": ["int", 10500]},
    }  # fmt: skip
    with mx.util.np_shape(True):
        net = mx.sym.load_json(json.dumps(file))
        assert net.attr("__shape__") == read
        assert net.infer_shape_partial()[1] == outputs
        file["attrs"]["is_np_shape"] = ["int", 1]
        assert mx.sym.load_json(json.dumps(file)).attr("__shape__") == written
    assert mx.sym.load_json(json.dumps(file)).attr("__shape__") == written


FORK = {
    "nodes": [
        {"op": "null", "name": "x", "inputs": []},
        {"op": "null", "name": "w", "inputs": []},
        {"op": "QActivation", "name": "q1", "attrs": {"act_bit": "1"}, "inputs": [[0, 0, 0]]},
        {"op": "QActivation", "name": "q2", "attrs": {}, "inputs": [[2, 0, 0]]},
        {"op": "tvm_op", "name": "t", "attrs": {}, "inputs": [[3, 0, 0], [1, 0, 0]]},
        {"op": "relu", "name": "r", "inputs": [[4, 1, 0]]},
    ],
    "arg_nodes": [0, 1],
    "heads": [[5, 0, 0]],
    "attrs": {"mxnet_version": ["int", 10300]},
}


def test_all_unknown_operators_of_a_file_are_named_at_once():
    with pytest.raises(mx.MXNetError, match="QActivation is not registered") as caught:
        mx.sym.load_json(json.dumps(FORK))
    text = str(caught.value)
    assert "Op q1, q2 of type QActivation" in text and "Op t of type tvm_op" in text
    assert "mx.sym.load(file, allow_unknown=True)" in text and "relu is" not in text


def test_all_unknown_operators_of_a_list_are_named_at_once():
    other = json.dumps(FORK).replace("tvm_op", "Strange")
    with pytest.raises(mx.MXNetError, match="of type tvm_op") as caught:
        mx.sym.load_json(f"[{json.dumps(FORK)}, {other}]")
    text = str(caught.value)
    assert "of type Strange" in text and text.count("of type QActivation") == 1
    assert text.count("allow_unknown=True") == 1


def test_unknown_operators_of_loops_are_named_with_the_others():
    x = mx.sym.Variable("x")
    looped = mx.sym.contrib.foreach(lambda row, s: (mx.sym.relu(row), s), x, [])[0]
    text = mx.sym.sigmoid(looped).tojson().replace('"relu"', '"Inner"')
    text = text.replace('"sigmoid"', '"Outer"')
    with pytest.raises(mx.MXNetError, match="of type Inner") as caught:
        mx.sym.load_json(text)
    assert "of type Outer" in str(caught.value)


@pytest.mark.parametrize(
    "load",
    [
        lambda prefix: mx.model.load_checkpoint(prefix, 1),
        lambda prefix: mx.mod.Module.load(prefix, 1),
        lambda prefix: mx.gluon.SymbolBlock.imports(f"{prefix}-symbol.json", ["x"]),
    ],
    ids=["load_checkpoint", "Module", "SymbolBlock"],
)
def test_a_model_of_unknown_operators_says_how_its_symbol_loads(load, tmp_path):
    prefix = str(tmp_path / "fork")
    mx.sym.load_json(json.dumps(FORK), allow_unknown=True).save(f"{prefix}-symbol.json")
    mx.nd.save(f"{prefix}-0001.params", {"arg:w": mx.nd.ones((1,))})
    with pytest.raises(mx.MXNetError, match=r"mx\.sym\.load\(file, allow_unknown=True\)"):
        load(prefix)


def test_unknown_operators_load_on_request(tmp_path):
    net = mx.sym.load_json(json.dumps(FORK), allow_unknown=True)
    assert net.list_arguments() == ["x", "w"] and net.list_outputs() == ["r_output"]
    inner = [n for n in net.get_internals().list_outputs() if n not in ("x", "w")]
    assert inner == ["q1_output", "q2_output", "t_output0", "t_output1", "r_output"]
    assert net.attr_dict()["q1"]["act_bit"] == "1"
    net.save(str(tmp_path / "fork.json"))
    again = mx.sym.load(str(tmp_path / "fork.json"), allow_unknown=True)
    assert json.loads(again.tojson())["nodes"] == json.loads(net.tojson())["nodes"]
    with pytest.raises(mx.MXNetError, match="operator 'QActivation' is not registered"):
        net.infer_shape(x=(2, 3), w=(2, 3))
    for copied in (pickle.loads(pickle.dumps(net)), copy.copy(net), copy.deepcopy(net)):
        assert copied.tojson() == net.tojson()


def test_names_of_forks_are_the_operators_they_stand_for():
    x = mx.sym.Variable("x")
    plain = mx.sym.Convolution(x, kernel=(3, 3), num_filter=4, num_group=4, name="c")
    plain = mx.sym.BatchNorm(plain, name="b")
    fork = plain.tojson().replace('"Convolution"', '"ChannelwiseConvolution"')
    fork = fork.replace('"BatchNorm"', '"CuDNNBatchNorm"')
    assert mx.sym.load_json(fork).tojson() == plain.tojson()


def test_a_custom_node_without_its_class_has_the_inputs_of_the_file():
    node = {"op": "Custom", "name": "p", "attrs": {"op_type": "no_such_type"}}
    node["inputs"] = [[0, 0, 0], [1, 0, 0]]
    file = dict(FORK, nodes=[*FORK["nodes"][:2], node, dict(FORK["nodes"][5], inputs=[[2, 2, 0]])])
    net = mx.sym.load_json(json.dumps(dict(file, heads=[[3, 0, 0]])))
    assert net.list_arguments() == ["x", "w"]
    assert net.get_internals()["p_output2"].list_outputs() == ["p_output2"]
    saved = json.loads(net.tojson())["nodes"][2]
    assert saved["attrs"] == {"op_type": "no_such_type"} and len(saved["inputs"]) == 2
    with pytest.raises(mx.MXNetError, match="unknown op_type 'no_such_type'"):
        net.infer_shape(x=(2,), w=(2,))
    with pytest.raises(mx.MXNetError, match="unknown op_type 'no_such_type'.*\nraised in .* 'p'$"):
        net.simple_bind(mx.cpu(), x=(2,), w=(2,))


def test_a_file_may_hold_a_list_of_symbols():
    texts = [mx.sym.relu(mx.sym.Variable(n), name=f"r{n}").tojson() for n in "ab"]
    nets = mx.sym.load_json(f" [{', '.join(texts)}]")
    assert [net.tojson() for net in nets] == texts
    with pytest.raises(mx.MXNetError, match="invalid symbol file: expected JSON"):
        mx.sym.load_json(f"[{texts[0]}")

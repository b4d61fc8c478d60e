"""Symbols: composition, names, attributes, inference, JSON."""

import copy
import json
import pickle
import re

import numpy as np
import pytest
from networks import mlp

import rsnet as mx
from rsnet.base import MXNetError

sym = mx.sym


# ---- names -------------------------------------------------------------------------------------


def test_automatic_names_come_from_functions():
    a, b = sym.Variable("a"), sym.Variable("b")
    with mx.name.NameManager():
        made = [a + b, a * 2, 2 - a, a / b, a**2, a == b, a > 1, -a, a + b, 2**a, sym.pow(2, a)]
        names = [s.name for s in made]
        assert sym.FullyConnected(a, num_hidden=2).name == "fullyconnected0"
    assert names == [
        "_plus0", "_mulscalar0", "_rminusscalar0", "_div0", "_powerscalar0", "_equal0",
        "_greater_scalar0", "_mulscalar1", "_plus1", "_rpower_scalar0", "_rpowerscalar0",
    ]  # fmt: skip


def test_name_managers_nest_and_count_anew():
    with mx.name.NameManager():
        first = (sym.Variable("a") + 1).name
        with mx.name.NameManager():
            assert (sym.Variable("a") + 1).name == first
        assert (sym.Variable("a") + 1).name != first


def test_prefix_names_operators_and_what_they_make_but_no_variables():
    with mx.name.Prefix("p_"):
        data = sym.Variable("data")
        net = sym.FullyConnected(data, name="fc", num_hidden=2)
    assert net.list_arguments() == ["data", "p_fc_weight", "p_fc_bias"]
    assert net.name == "p_fc"


# ---- attributes --------------------------------------------------------------------------------


def test_attribute_scopes_merge_and_the_inner_wins():
    with mx.AttrScope(ctx_group="outer", mood="calm"):
        with mx.AttrScope(ctx_group="inner"):
            x = sym.Variable("x", attr={"mood": "wild"})
            y = x + 1
    assert x.attr("ctx_group") == "inner"
    assert x.attr("mood") == "wild"
    assert y.attr("mood") == "calm"
    assert sym.Variable("z").attr("mood") is None


def test_hidden_keys_have_two_spellings():
    x = sym.Variable("x", lr_mult=0.5, wd_mult=2)
    assert x.attr("__lr_mult__") == x.attr("lr_mult") == "0.5"
    assert x.list_attr()["wd_mult"] == "2"


def test_variable_keywords_become_attributes():
    x = sym.Variable("x", shape=(2, 3), dtype="float16", init='["one", {}]')
    attrs = x.list_attr()
    assert attrs["__shape__"] == "(2, 3)"
    assert attrs["__dtype__"] == "2"
    assert json.loads(attrs["__init__"])[0] == "one"
    assert sym.Variable("x", __mine__="1").attr("__mine__") == "1"


def test_attributes_of_an_operator_become_text():
    out = sym.FullyConnected(
        sym.var("x"), num_hidden=2, name="f", attr={"__a__": 2, "__init__": mx.init.Constant(3)}
    )
    init = mx.init.Constant(3).dumps()
    assert out.attr("__a__") == "2" and out.attr("__init__") == init
    assert out.attr_dict()["f_weight"]["__init__"] == init


def test_bad_attributes_are_refused():
    with pytest.raises(ValueError, match="string"):
        mx.AttrScope(a=1)
    with pytest.raises(ValueError, match="invalid attribute .mine. of variable"):
        sym.Variable("x", mine="1")
    with pytest.raises(TypeError, match="invalid name 3: expected a string"):
        sym.Variable(3)
    with pytest.raises(ValueError, match="invalid attribute 'a' 1: expected a string"):
        sym.Variable("x")._set_attr(a=1)


def test_auto_variables_copy_the_attributes_of_their_operator():
    net = sym.FullyConnected(sym.Variable("x"), name="fc", num_hidden=2, attr={"mood": "calm"})
    attrs = net.attr_dict()
    assert attrs["fc_weight"]["mood"] == "calm"
    assert attrs["fc_weight"]["num_hidden"] == "2"


def test_attr_reads_special_keys():
    net = mlp()
    assert net.attr("name") == "softmax"
    assert net.attr("nothing") is None
    net._set_attr(mood="calm")
    assert net.attr("mood") == "calm"
    with pytest.raises(DeprecationWarning, match="use attr_dict"):
        net.list_attr(recursive=True)


def test_the_attribute_name_renames_the_node():
    net = sym.relu(sym.FullyConnected(sym.Variable("x"), name="fc", num_hidden=2), name="act")
    net._set_attr(name="renamed")
    assert (net.name, net.list_outputs()) == ("renamed", ["renamed_output"])
    assert "renamed" not in net.attr_dict()
    loaded = sym.load_json(net.tojson())
    assert loaded.list_outputs() == ["renamed_output"]
    x = sym.Variable("x")
    x._set_attr(name="z")
    assert x.list_arguments() == ["z"]


# ---- composition -------------------------------------------------------------------------------


def test_missing_inputs_become_variables():
    assert mlp().list_arguments() == [
        "data", "fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias", "softmax_label",
    ]  # fmt: skip
    net = sym.FullyConnected(num_hidden=2, no_bias=True, name="fc")
    assert net.list_arguments() == ["fc_data", "fc_weight"]


def test_inputs_by_position_and_keyword():
    a, b = sym.Variable("a"), sym.Variable("b")
    net = sym.FullyConnected(a, bias=b, num_hidden=2, name="fc")
    assert net.list_arguments() == ["a", "fc_weight", "b"]
    both = sym.Concat(a, b, dim=1, name="c")
    assert both.list_arguments() == ["a", "b"]
    assert both.attr("num_args") == "2"


def test_composing_replaces_variables_of_a_copy():
    net = mlp()
    inner = sym.Activation(sym.Variable("inner"), act_type="tanh", name="act")
    composed = net(data=inner, name="renamed")
    assert composed.list_arguments()[0] == "inner"
    assert composed.name == "renamed"
    assert net.list_arguments()[0] == "data" and net.name == "softmax"
    x, y = sym.Variable("x"), sym.Variable("y")
    swapped = (x - y)(sym.Variable("p"), sym.Variable("q"))
    assert swapped.list_arguments() == ["q", "p"]


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda a: sym.FullyConnected(foo=a, num_hidden=1), MXNetError, "foo"),
        (lambda a: sym.Concat(a, arg1=a), (TypeError, MXNetError), "not both"),
        (lambda a: sym.FullyConnected(3, num_hidden=1), TypeError, "Symbol"),
        (lambda a: sym.FullyConnected(sym.Group([a, a]), num_hidden=1), MXNetError, "tuple"),
        (lambda a: a(a), MXNetError, "Variable cannot be composed"),
        (lambda a: (a + 1)(a, b=a), TypeError, "not both"),
        (lambda a: (a + 1)(3), TypeError, "Symbol"),
        (
            lambda a: (a + 1)(nothing=a),
            MXNetError,
            "unknown argument 'nothing': expected one of: a",
        ),
        (lambda a: (a + a)(a, a), MXNetError, "requires 1, provided 2"),
        (lambda a: a + "x", TypeError, "not supported"),
        (lambda a: sym.Group([]), TypeError, "invalid symbols []: expected one Symbol at least"),
        (lambda a: sym.FullyConnected(a, num_hidden=-1), MXNetError, "num_hidden"),
        (lambda a: sym.FullyConnected(a), MXNetError, "num_hidden"),
        (lambda a: sym.Activation(a, act_type="nope"), MXNetError, "nope"),
        (lambda a: sym.no_such_operator(a), AttributeError, "no_such_operator"),
    ],
)
def test_bad_composition_says_what_is_wrong(make, error, text):
    with pytest.raises(error, match=re.escape(text)):
        make(sym.Variable("a"))


def test_symbols_refuse_what_arrays_do():
    a = sym.Variable("a")
    for act in (lambda: bool(a), a.asnumpy, a.wait_to_read, a.backward, a.detach):
        with pytest.raises(mx.base.NotImplementedForSymbol):
            act()
    with pytest.raises(mx.base.NotImplementedForSymbol, match="Function __iadd__"):
        a += 1


# ---- introspection -----------------------------------------------------------------------------


def test_outputs_and_internals():
    net = mlp()
    assert net.list_outputs() == ["softmax_output"]
    internals = net.get_internals()
    assert internals.list_outputs() == [
        "data", "fc1_weight", "fc1_bias", "fc1_output", "relu1_output", "fc2_weight", "fc2_bias",
        "fc2_output", "softmax_label", "softmax_output",
    ]  # fmt: skip
    assert internals["fc1_output"].list_arguments() == ["data", "fc1_weight", "fc1_bias"]
    assert net.get_children().list_outputs() == ["fc2_output", "softmax_label"]
    assert sym.Variable("x").get_children() is None


def test_indexing():
    a, b = sym.Variable("a"), sym.Variable("b")
    group = sym.Group([a, b, a + b])
    assert len(group) == 3
    assert group[0].name == "a"
    assert group[1:].list_outputs()[0] == "b"
    assert [s.name for s in group][:2] == ["a", "b"]
    assert repr(a) == "<Symbol a>"
    assert repr(sym.Group([a, b])) == "<Symbol group [a, b]>"
    with pytest.raises(IndexError, match="invalid index 3: expected 0 to 2"):
        group[3]
    with pytest.raises(MXNetError, match="invalid index -1: expected 0 to 2"):
        group[-1]
    with pytest.raises(ValueError, match="invalid index 'c': expected the name of one of: a, b"):
        group["c"]
    with pytest.raises(ValueError, match="invalid index 'a': expected the name of one of: a, a"):
        sym.Group([a, a])["a"]
    with pytest.raises(TypeError, match=r"invalid index 1\.5: expected an integer"):
        group[1.5]


def test_auxiliary_states_are_no_arguments():
    net = sym.BatchNorm(sym.Variable("x"), name="bn")
    assert net.list_arguments() == ["x", "bn_gamma", "bn_beta"]
    assert net.list_auxiliary_states() == ["bn_moving_mean", "bn_moving_var"]
    assert net.list_inputs() == [
        "x", "bn_gamma", "bn_beta", "bn_moving_mean", "bn_moving_var",
    ]  # fmt: skip
    assert net.list_outputs() == ["bn_output"]


def test_duplicate_names_are_listed_twice():
    net = sym.Variable("x") + sym.Variable("x")
    assert net.list_arguments() == ["x", "x"]


def test_copies_and_pickles_are_equal():
    net = mlp()
    for other in (copy.copy(net), copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert other.tojson() == net.tojson()
        other._set_attr(mood="x")
        assert net.attr("mood") is None


# ---- inference ---------------------------------------------------------------------------------


def test_shapes_flow_in_both_directions():
    a, b, c = sym.Variable("a", shape=(2, 0)), sym.Variable("b"), sym.Variable("c", shape=(0, 3))
    assert (a * b + b * c).infer_shape() == ([(2, 3)] * 3, [(2, 3)], [])


def test_parameter_shapes_follow_from_data():
    args, outs, aux = mlp().infer_shape(data=(5, 4))
    assert args == [(5, 4), (8, 4), (8,), (3, 8), (3,), (5,)]
    assert outs == [(5, 3)]
    assert aux == []


def test_incomplete_inference_warns_and_partial_tells_what_is_known():
    net = sym.FullyConnected(sym.Variable("x"), num_hidden=3, name="fc")
    with pytest.warns(UserWarning, match="x"):
        assert net.infer_shape() == (None, None, None)
    args, _outs, _ = net.infer_shape_partial()
    assert args[0] == () and args[2] == (3,)


@pytest.mark.parametrize(
    ("make", "given", "out", "back"),
    [
        (lambda x: sym.transpose(x, axes=(2, 0, 1)), (2, 0, 4), (4, 2, 0), ((5, 0, 3), (0, 3, 5))),
        (lambda x: sym.expand_dims(x, axis=-1), (0, 3), (0, 3, 1), ((2, 0, 1), (2, 0))),
        (lambda x: sym.SwapAxis(x, dim1=0, dim2=1), (0, 3), (3, 0), ((0, 2), (2, 0))),
        (lambda x: sym.reverse(x, axis=0), (0, 3), (0, 3), ((2, 0), (2, 0))),
        (lambda x: sym.Flatten(x), (0, 3, 4), (0, 12), None),
        (lambda x: sym.Flatten(x), (2, 0, 4), (2, 0), None),
        (lambda x: sym.Reshape(x, shape=(0, -1)), (0, 3, 4), (0, 0), None),
        (lambda x: sym.Reshape(x, shape=(0, -3)), (0, 3, 4), (0, 12), None),
        (lambda x: sym.Reshape(x, shape=(-4, 2, -1, 0)), (0, 3), (2, 0, 3), None),
        (lambda x: sym.slice_axis(x, axis=1, begin=1, end=3), (0, 5), (0, 2), None),
        (lambda x: sym.slice_axis(x, axis=0, begin=1, end=3), (0, 5), (0, 5), None),
        (lambda x: sym.slice(x, begin=(0, 1), end=(1, 3)), (0, 5), (0, 2), None),
        (lambda x: sym.squeeze(x, axis=1), (0, 1, 3), (0, 3), None),
        (lambda x: sym.squeeze(x), (0, 1, 3), (), ((2, 3), ())),
        (lambda x: sym.tile(x, reps=(2, 1, 3)), (0, 4), (2, 0, 12), None),
    ],
)
def test_parts_of_shapes_flow_through_operators_of_shape(make, given, out, back):
    x = sym.Variable("x")
    assert make(x).infer_shape_partial(x=given)[1] == [out]
    if back is not None:
        known, inferred = back
        # The output's shape comes from the other operand of a sum.
        net = make(x) + sym.Variable("y", shape=known)
        assert net.infer_shape_partial()[0][0] == inferred


def test_np_shape_tells_empty_from_unknown():
    x = sym.Variable("x")
    with mx.util.np_shape(True):
        assert (x + x).infer_shape(x=(0, 2))[1] == [(0, 2)]
        assert (x + x).infer_shape_partial(x=(-1, 2))[1] == [(-1, 2)]
        assert (x + x).infer_shape_partial()[1] == [None]


def test_types():
    net = mlp()
    args, outs, _ = net.infer_type(data="float64")
    assert args[0] is np.float64 and outs == [np.float64]
    assert (sym.Variable("a") + sym.Variable("b")).infer_type_partial()[0] == [None, None]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda net: net.infer_shape(nothing=(1,)), MXNetError, "unknown argument 'nothing'"),
        (lambda net: net.infer_shape((5, 4), data=(5, 4)), ValueError, "either by positional or"),
        (lambda net: net.infer_shape(data=[5, 4]), TypeError, "of 'data': expected a tuple"),
        (
            lambda net: net.infer_type(data="float32", fc1_weight="float64"),
            MXNetError,
            "FullyConnected 'fc1': .* expected float32, got float64",
        ),
    ],
)
def test_bad_inference_input(call, error, text):
    with pytest.raises(error, match=text):
        call(mlp())


def test_a_contradiction_names_operator_node_and_shapes():
    with pytest.raises(MXNetError) as caught:
        mlp().infer_shape(data=(5, 4), fc1_weight=(8, 5))
    text = str(caught.value)
    for part in ("FullyConnected", "fc1", "(8, 5)", "(8, 4)"):
        assert part in text


# ---- JSON --------------------------------------------------------------------------------------


def test_json_round_trip(tmp_path):
    net = mlp()
    path = str(tmp_path / "net-symbol.json")
    net.save(path)
    again = sym.load(path)
    assert again.tojson() == net.tojson()
    assert again.infer_shape(data=(5, 4)) == net.infer_shape(data=(5, 4))
    stored = json.loads(net.tojson())
    assert stored["attrs"] == {"mxnet_version": ["int", 10901]}
    assert stored["nodes"][0]["op"] == "null"


def test_old_json_loads():
    old = json.dumps(
        {
            "nodes": [
                {"op": "null", "param": {}, "name": "x", "inputs": [], "backward_source_id": -1},
                {
                    "op": "FullyConnected",
                    "param": {"no_bias": "True", "num_hidden": "2"},
                    "name": "fc",
                    "inputs": [[0, 0], [2, 0]],
                    "backward_source_id": -1,
                    "attr": {"fc_weight_lr_mult": "0.5", "weight_lr_mult": "0.25"},
                },
            ],
            "arg_nodes": [0],
            "heads": [[1, 0]],
        }
    )
    with pytest.raises(MXNetError, match="invalid node of an entry 2"):
        sym.load_json(old)  # node 1 reads node 2, which does not exist
    ordered = json.loads(old)
    weight = {"op": "null", "param": {}, "name": "w", "inputs": [], "backward_source_id": -1}
    ordered["nodes"].insert(1, weight)
    ordered["nodes"][2]["inputs"] = [[0, 0], [1, 0]]
    ordered["arg_nodes"], ordered["heads"] = [0, 1], [[2, 0]]
    net = sym.load_json(json.dumps(ordered))
    assert net.list_arguments() == ["x", "w"]
    assert net.attr_dict()["w"]["__lr_mult__"] == "0.25"


# ---- functions ---------------------------------------------------------------------------------


def test_functions_have_signatures_and_docs():
    import inspect

    function = sym.FullyConnected
    assert function is sym.FullyConnected
    names = list(inspect.signature(function).parameters)
    assert names[:4] == ["data", "weight", "bias", "num_hidden"]
    assert "num_hidden" in function.__doc__
    assert "FullyConnected" in dir(sym)


def test_fluent_methods_equal_functions():
    x = sym.Variable("x")
    with mx.name.NameManager():
        a = x.reshape((2, 3)).sum(axis=1).relu()
    with mx.name.NameManager():
        b = sym.relu(sym.sum(sym.Reshape(x, shape=(2, 3)), axis=1))
    assert a.infer_shape(x=(6,))[1] == b.infer_shape(x=(6,))[1] == [(2,)]


def test_symbols_like_functions_of_arrays():
    run = lambda s, **k: [o.asnumpy() for o in s.eval(ctx=mx.cpu(), **k)]  # noqa: E731
    np.testing.assert_array_equal(run(sym.eye(2, 3, k=1))[0], np.eye(2, 3, 1))
    np.testing.assert_allclose(run(sym.linspace(0, 1, 4))[0], np.linspace(0, 1, 4), rtol=1e-6)
    np.testing.assert_allclose(run(sym.linspace(0, 1, 4, endpoint=False))[0], [0, 0.25, 0.5, 0.75])
    x = sym.Variable("x")
    values = mx.nd.array(np.arange(10).reshape(5, 2))
    for cuts in (5, (1, 3)):
        got = run(sym.split_v2(x, cuts), x=values)
        want = np.split(np.arange(10).reshape(5, 2), cuts)
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b)


def test_symbols_of_values():
    shapes = sym.Group([sym.zeros((2, 3)), sym.ones((4,)), sym.arange(0, 6, 2)]).infer_shape()[1]
    assert shapes == [(2, 3), (4,), (3,)]
    x = sym.Variable("x")
    assert sym.maximum(x, 2).list_arguments() == ["x"]
    assert sym.power(2, 3) == 8


def test_hidden_attributes_may_be_given_like_parameters():
    a = sym.Variable("a")
    net = sym.FullyConnected(a, num_hidden=2, lr_mult=2, ctx_group="dev", name="f")
    attrs = net.list_attr()
    assert attrs["__lr_mult__"] == attrs["lr_mult"] == "2" and attrs["__ctx_group__"] == "dev"
    assert net.infer_shape(a=(1, 3))[1] == [(1, 2)]
    with pytest.raises(ValueError, match="Variable.*lr_mult"):
        sym.FullyConnected(a, num_hidden=2, weight_lr_mult=2)
    custom = sym.Custom(a, op_type="t_any", my_lr_mult=3)
    assert custom.list_attr()["my_lr_mult"] == "3"


def test_simple_bind_lists_its_arguments_when_dtypes_disagree():
    net = sym.Variable("a") + sym.Variable("b")
    with pytest.raises(MXNetError, match=r"simple_bind error. Arguments:\na: \(2,\)"):
        net.simple_bind(mx.cpu(), a=(2,), b=(2,), type_dict={"a": "float16", "b": "float32"})


@pytest.mark.parametrize("scope", ["lr_mult", "__lr_mult__"])
def test_a_variables_own_attribute_wins_over_the_scope_in_either_spelling(scope):
    with mx.AttrScope(**{scope: "2", "ctx_group": "a"}):
        w = mx.sym.Variable("w", lr_mult=3.0)
        b = mx.sym.Variable("b", attr={"__ctx_group__": "b", "lr_mult": "4"})
        c = mx.sym.Variable("c")
    assert [float(s.attr("lr_mult")) for s in (w, b, c)] == [3, 4, 2]
    assert [s.attr("ctx_group") for s in (w, b, c)] == ["a", "b", "a"]


def test_names_that_nothing_has_are_warned_of_when_binding():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    with pytest.warns(UserWarning, match="grad_req names 'fc_weigth'.*fc_weight"):
        net.simple_bind(mx.cpu(), grad_req={"fc_weigth": "write"}, data=(2, 2))
    args = {"data": (2, 2), "fc_weight": (2, 2), "fc_bias": (2,)}
    args = {name: mx.nd.zeros(shape) for name, shape in args.items()}
    with pytest.warns(UserWarning, match="args_grad names 'fc_weigth'"):
        net.bind(mx.cpu(), args, {"fc_weigth": mx.nd.zeros((2, 2))})


def test_names_in_namespaces_are_without_their_prefix():
    """As in MXNet, so that parameters by such names are found in files of either."""
    x, y, sym = mx.sym.Variable("x"), mx.sym.Variable("y"), mx.sym
    layer = {"kernel": (3, 3), "num_filter": 2}
    with mx.name.NameManager():
        pairs = [
            (sym.contrib.DeformableConvolution(x, **layer), "deformableconvolution0"),
            (sym.contrib.MultiBoxPrior(x), "multiboxprior0"),
            (sym.linalg.gemm2(x, y), "gemm20"),
            (sym.image.to_tensor(x), "to_tensor0"),
            (sym.random.uniform_like(x), "uniform_like0"),
            (sym.random.uniform(shape=(2,)), "_random_uniform0"),
        ]
    assert [made.name for made, _ in pairs] == [name for _, name in pairs]
    offset, weight = pairs[0][0].list_arguments()[1:3]
    assert (offset, weight) == ("deformableconvolution0_offset", "deformableconvolution0_weight")

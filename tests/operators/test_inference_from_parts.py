"""What is inferred from parts of shapes is part of what is inferred from whole ones: for every case
of every operator, whichever extents or shapes are left out.
"""

import random

import numpy as np
import pytest
from cases import CASES
from operators import EXISTING, function

import rsnet as mx

# Inputs that may have one of several shapes, of which inference chooses one.
SEVERAL = {("where", "v0"), ("SoftmaxOutput", "v1"), ("_contrib_group_adagrad_update", "v2")}
# Operators whose symbols take their optional inputs by name, and one without outputs.
SKIPPED = ["_contrib_quantized_conv", "_contrib_quantized_fully_connected", "_npi_insert_tensor"]
SKIPPED += ["reset_arrays"]
TRIED = [op for op in CASES if op in EXISTING and op not in SKIPPED]
TRIES = 4


def is_part(part, whole, unknown):
    """Does what is known of `part` agree with `whole`?"""
    if part is None or (unknown == 0 and part == ()):
        return True
    return len(part) == len(whole) and all(
        p in (unknown, w) for p, w in zip(part, whole, strict=True)
    )


def parts(shapes, unknown, rng):
    """Some of the shapes, with some extents unknown."""
    for name, shape in shapes.items():
        chance = rng.random()
        if chance < 0.5:
            yield name, tuple(unknown if rng.random() < 0.4 else n for n in shape)
        elif chance < 0.7:
            yield name, shape


@pytest.mark.parametrize("np_shape", [False, True])
@pytest.mark.parametrize("op", TRIED)
def test_parts_agree_with_wholes(op, np_shape):
    unknown = -1 if np_shape else 0
    rng = random.Random(op)
    with mx.np_shape(np_shape):
        for case in CASES[op]:
            shapes = {f"v{i}": spec.shape for i, spec in enumerate(case.inputs)}
            if not np_shape and any(not s or 0 in s for s in shapes.values()):
                continue  # of unknown extents
            net = function(mx.sym, op)(*map(mx.sym.Variable, shapes), **case.params)
            args, outs, states = net.infer_shape(**shapes)
            names = net.list_arguments() + net.list_outputs() + net.list_auxiliary_states()
            whole = dict(zip(names, args + outs + states, strict=True))
            for _ in range(TRIES):
                given = dict(parts(shapes, unknown, rng))
                found = [s for group in net.infer_shape_partial(**given) for s in group]
                for name, part in zip(names, found, strict=True):
                    ok = is_part(part, whole[name], unknown) or (op, name) in SEVERAL
                    assert ok, f"{case.id}, {name} from {given}: {part}, not {whole[name]}"


def test_moments_are_known_where_a_reduced_extent_is_not():
    moments = mx.sym.moments(mx.sym.var("x"), axes=(0,))
    assert moments.infer_shape_partial(x=(0, 3))[1] == [(3,), (3,)]
    assert (
        mx.sym.moments(mx.sym.var("x"), axes=(0,), keepdims=True).infer_shape_partial(x=(0, 3))[1]
        == [(1, 3)] * 2
    )


X, OTHER = mx.sym.var("x"), mx.sym.var("o")
split = mx.sym.split_v2


@pytest.mark.parametrize(
    ("net", "given", "want"),
    [
        (mx.sym.cumsum(X, axis=1) + OTHER, {"o": (2, 3)}, (2, 3)),
        (mx.sym.cumsum(X, axis=1) + OTHER, {"x": (0, 3), "o": (2, 0)}, (2, 3)),
        (mx.sym.unravel_index(X, shape=(2, 3)) + OTHER, {"o": (2, 7)}, (7,)),
        (mx.sym.unravel_index(X, shape=(2, 3)) + OTHER, {"o": (2, 7, 4)}, (7, 4)),
        (mx.sym.ravel_multi_index(X, shape=(2, 3)) + OTHER, {"o": (7,)}, (2, 7)),
        (mx.sym.ravel_multi_index(X, shape=(2, 3)) + OTHER, {"o": (7, 4)}, (2, 7, 4)),
        (mx.sym.ravel_multi_index(X, shape=(2, 3)) + OTHER, {"x": (2,)}, (2,)),
        (split(X, (1, 2), axis=1)[0] + OTHER, {"x": (0, 4, 6), "o": (2, 1, 6)}, (2, 4, 6)),
        (split(X, 2, axis=-2)[1] + OTHER, {"x": (0, 4, 0), "o": (2, 2, 6)}, (2, 4, 6)),
        (split(X, (1,), axis=1)[0] + OTHER, {"x": (0, 0, 6), "o": (2, 1, 6)}, (2, 0, 6)),
        (
            split(X, 4, axis=1, squeeze_axis=True)[0] + OTHER,
            {"x": (0, 4, 6), "o": (2, 6)},
            (2, 4, 6),
        ),
    ],
)  # fmt: skip
def test_inputs_are_known_by_the_outputs(net, given, want):
    shapes = dict(zip(net.list_arguments(), net.infer_shape_partial(**given)[0], strict=True))
    assert shapes["x"] == want


def test_outputs_that_disagree_are_refused():
    for net, o in [
        (mx.sym.unravel_index(X, shape=(2, 3)), (3, 7)),
        (split(X, (1, 2), axis=1)[0], (3, 1, 6)),
        (mx.sym.cumsum(X, axis=2), (2, 3)),
    ]:
        shapes = {"x": (2, 4, 6)} if len(o) == 3 else {}
        with pytest.raises(mx.MXNetError):
            (net + OTHER).infer_shape(o=o, **shapes)


def test_a_number_of_elements_is_one_number_whatever_they_are():
    assert mx.sym.size_array(X).infer_shape_partial()[1] == [(1,)]
    assert mx.sym.shape_array(X).infer_shape_partial(x=(0, 3))[1] == [(2,)]
    assert mx.sym.shape_array(X).infer_shape_partial()[1] == [()]


def test_indices_of_batch_take_are_int32_unless_they_are_given():
    net = mx.sym.batch_take(X, OTHER)
    assert net.infer_type(x="float32")[0] == [np.float32, np.int32]
    assert net.infer_type(x="float16", o="int64")[0] == [np.float16, np.int64]
    exe = net.simple_bind(mx.cpu(), x=(2, 3))
    assert exe.arg_dict["o"].dtype == np.int32

"""What is inferred from parts of shapes is part of what is inferred from whole ones: for every case
of every operator, whichever extents or shapes are left out.
"""

import random

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

"""Classes of operators for tests, from single methods."""

import rsnet as mx
from rsnet import nd


def prop(base=mx.OperatorProperty, **methods):
    """A property class with these methods, by default elementwise over one input."""
    given = {
        "infer_shape": lambda self, shapes: (shapes, [shapes[0]], []),
        "create_operator": lambda self, ctx: mx.Operator(),
    }
    return type("Prop", (base,), given | methods)


def registered(name, **methods):
    mx.operator.register(name)(prop(**methods))
    return getattr(nd, name)


def operator(forward=None, backward=None):
    return type("Op", (mx.Operator,), {k: v for k, v in
                (("forward", forward), ("backward", backward)) if v})()  # fmt: skip

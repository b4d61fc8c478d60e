"""Tests of bad input: what a message says, and that everything works afterwards."""

import pytest

import rsnet as mx


@pytest.fixture(autouse=True)
def still_working():
    """After every bad input, arithmetic, waiting and a bound graph must work as before."""
    yield
    x = mx.nd.ones((3, 4)) * 2
    assert x.sum().asscalar() == 24
    exe = (mx.sym.Variable("x") + 1).bind(mx.cpu(), {"x": x})
    assert exe.forward()[0].asnumpy().tolist() == [[3.0] * 4] * 3
    mx.nd.waitall()


def says(error, *words):
    text = str(error.value)
    text += "".join(getattr(error.value, "__notes__", []))
    missing = [w for w in words if str(w) not in text]
    assert not missing, f"the message lacks {missing}:\n{text}"

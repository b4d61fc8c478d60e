"""Attributes of classes that stand for the state of a thread."""

import threading

import pytest

import rsnet as mx

SCOPES = [
    (mx.name.NameManager, "current", mx.name.NameManager),
    (mx.AttrScope, "current", lambda: mx.AttrScope(ctx_group="a")),
    (mx.Context, "default_ctx", lambda: mx.cpu(3)),
]


@pytest.mark.parametrize(("owner", "attribute", "make"), SCOPES)
def test_current_is_the_innermost_scope_of_the_thread(owner, attribute, make):
    before, seen = getattr(owner, attribute), []
    with make():
        inner = getattr(owner, attribute)
        assert inner is not before
        other = threading.Thread(target=lambda: seen.append(getattr(owner, attribute)))
        other.start()
        other.join()
    assert getattr(owner, attribute) == before
    assert seen[0] is not inner


@pytest.mark.parametrize(("owner", "attribute", "make"), SCOPES)
def test_current_can_be_set(owner, attribute, make):
    before, value = getattr(owner, attribute), make()
    try:
        setattr(owner, attribute, value)
        assert getattr(owner, attribute) == value
    finally:
        setattr(owner, attribute, before)


def test_symbols_take_their_names_from_the_manager_that_was_set():
    before = mx.name.NameManager.current
    try:
        mx.name.NameManager.current = mx.name.Prefix("net_")
        assert mx.sym.Variable("x").relu().name == "net_relu0"
    finally:
        mx.name.NameManager.current = before

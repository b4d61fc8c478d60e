"""``@register("name")``: enters a class into the registry and makes its operator."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from .. import _core
from .._warnings import warn
from ..base import MXValueError, shown
from . import registry
from .checks import TYPES, check_exec_type, check_struct, free_name, invalid, refuse_parameters
from .custom_op import CustomOpProp
from .definition import ANY_INPUTS, Definition, checked_views, named_inputs
from .legacy import PythonOp
from .property import OperatorProperty
from .property_node import Node, checked_operator, node_definitions

C = TypeVar("C", bound=type)


def register(reg_name: str) -> Callable[[C], C]:
    """Class decorator that registers an operator.

    A subclass of :class:`OperatorProperty` becomes ``nd.<name>`` and ``sym.<name>``; a subclass of
    :class:`CustomOpProp` is called by ``nd.Custom`` and ``sym.Custom`` with ``op_type="<name>"``.
    Registering a name again warns and replaces; graphs that are bound keep the old class. Replacing
    a built-in operator is an error. Classes of :class:`NumpyOp` and :class:`NDArrayOp` have no
    names: they are left as they are, with a warning.
    """
    if not isinstance(reg_name, str) or not reg_name:
        raise invalid("register", "name of an operator", reg_name, "a string", TypeError)

    where = f"register({shown(reg_name)})"

    def decorate(cls: C) -> C:
        if isinstance(cls, type) and issubclass(cls, CustomOpProp):
            _check_methods(where, cls, CustomOpProp)
            if reg_name in registry.custom_props:
                registry.warn_of_replacing(f"custom operator '{reg_name}'", "class")
            registry.custom_props[reg_name] = cls
        elif isinstance(cls, type) and issubclass(cls, OperatorProperty):
            _check_methods(where, cls, OperatorProperty)
            check_struct(where, f"{cls.__name__}.Param", cls.Param)
            _register_property(free_name("register", reg_name), cls)
        elif isinstance(cls, type) and issubclass(cls, PythonOp):
            warn(f"{where}: {cls.__name__} is called as an object, not by a name")
        else:
            classes = "a subclass of OperatorProperty or CustomOpProp"
            raise invalid(where, "class", cls, classes, TypeError)
        return cls

    return decorate


def _check_methods(where: str, cls: type, base: type) -> None:
    """Refuses values in the place of methods; ``accumulates`` may be one. (What a property or
    another descriptor gives is seen where it is called.)
    """
    for name in dir(base):
        value = inspect.getattr_static(cls, name)
        method = callable(getattr(base, name)) and name[0] != "_" and name != "accumulates"
        if method and not callable(value) and not hasattr(value, "__get__"):
            raise invalid(where, f"{cls.__name__}.{name}", value, "a method", TypeError)


def _register_property(name: str, cls: type[OperatorProperty]) -> None:
    if cls.type_string is not OperatorProperty.type_string:
        says = cls().type_string()
        if says != name:
            what = f"result of type_string of {cls.__name__}"
            raise invalid(f"register({shown(name)})", what, says, shown(name))
    if _core.is_builtin_operator(name):
        text = f"register: invalid name {shown(name)}: expected none of a built-in operator"
        raise MXValueError(text)
    known = name in registry.properties
    if known:
        registry.warn_of_replacing(f"operator '{name}'", "class")
    forward, backward = _property_definitions(name, cls)
    backward.install(replace=known)
    forward.install(replace=known)
    registry.properties[name] = cls
    cls._registered_as = name


def _property_definitions(name: str, cls: type[OperatorProperty]) -> tuple[Definition, Definition]:
    params = cls.Param
    own_init = cls.init is not OperatorProperty.init
    schema = _core.Schema([], open=True) if params is None else params._schema

    def make(values: tuple[Any, ...], given: dict[str, Any]) -> Node:
        prop = cls()
        prop._registered_as = name
        if own_init or params is None:
            prop.init({k: str(v) for k, v in given.items()})
        else:
            refuse_parameters(name, values, given)
            prop.param = params.from_values(values)
        return Node(name, prop, property_style=True)

    def state(node: Node, ctx: Any, shapes: list[Any], types: list[Any]) -> Any:
        n = node.n_args
        kinds = [TYPES[t] for t in types[:n]]
        made = checked_operator(name, node.prop.create_operator_ex(ctx, shapes[:n], kinds))
        if hasattr(made, "exec_type"):
            check_exec_type(name, "exec_type", made.exec_type())
        return made

    forward, backward = node_definitions(
        name,
        schema,
        make,
        lambda node, op, ctx, ins, aux, req, outs: op.forward(ctx, ins, req, outs, aux),
        lambda node, op, ctx, out_grad, ins, outs, aux, req, in_grad: op.backward(
            ctx, out_grad, ins, outs, req, in_grad, aux
        ),
        state=state,
        hints=True,
        views=checked_views(name, cls.views),
    )
    forward.doc = cls.__doc__ or ""
    forward.key_var_num_args = cls.key_var_num_args
    forward.input_docs = _documented_inputs(cls)
    return forward, backward


def _documented_inputs(cls: type[OperatorProperty]) -> list[tuple[str, str, str]]:
    """The inputs with all parameters at their defaults (None for required ones), for the
    signature.
    """
    if cls.key_var_num_args:
        return ANY_INPUTS
    try:
        prop = cls()
        if cls.Param is not None:
            prop.param = cls.Param.from_values(list(cls.Param._defaults.values()))
        names = [*prop.list_arguments(), *prop.list_auxiliary_states()]
    except Exception:  # only the signature suffers: the real names come with real parameters
        names = ["data"]
    return named_inputs(names, cls.argument_docs)

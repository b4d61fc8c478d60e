"""The stub of the binding has every member of its two inner modules, which stubtest cannot see."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import rsnet
from rsnet import _core

STUB = Path(rsnet.__file__).with_name("_core.pyi")


def declared(class_name):
    tree = ast.parse(STUB.read_text(encoding="utf-8"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    functions, attributes = {}, set()
    for node in classes[class_name].body:
        if isinstance(node, ast.FunctionDef):
            functions[node.name] = [a.arg for a in node.args.args[1:]], len(node.args.defaults)
        elif isinstance(node, ast.AnnAssign):
            attributes.add(node.target.id)
    return functions, attributes


def found(module):
    functions, attributes = {}, set()
    for name in dir(module):
        if name.startswith("__"):
            continue
        value = getattr(module, name)
        if isinstance(value, type):
            attributes.add(name)
        else:
            parameters = inspect.signature(value).parameters
            optional = [p for p in parameters.values() if p.default is not p.empty]
            functions[name] = list(parameters), len(optional)
    return functions, attributes


@pytest.mark.parametrize(("name", "class_name"), [("engine", "_Engine"), ("profiler", "_Profiler")])
def test_inner_modules_have_the_members_of_the_stub(name, class_name):
    assert found(getattr(_core, name)) == declared(class_name)

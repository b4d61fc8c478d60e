"""Rust files that import one another in a circle are those of this list, which may only shrink;
modules of Python do not, but for a few by imports within functions.
"""

import ast
import re
from collections.abc import Iterator

from places import ROOT
from rust_code import modules

PYTHON = ROOT / "python" / "rsnet"

CIRCLES = [
    {"executor/autograd/tape_builder", "executor/autograd/walk"},
    {"graph/infer/assume", "graph/infer/joint"},
    {"graph/json/backward", "graph/json/build"},
    {"operator/def", "operator/gradient"},
    {"operator/device", "operator/kernel"},
    {"operator/literal", "operator/value"},
    {"ops/device/binary", "ops/elementwise/binary"},
    {"ops/vision/deformable", "ops/vision/deformable_columns"},
    {"py/operator", "py/operator_gradient"},
    {
        "ops/device/reduce",
        "ops/device/shape",
        "ops/tensor/movement",
        "ops/tensor/parts",
        "ops/tensor/reduce",
    },
]

#: Modules of Python that reach one another in a circle by imports within functions.
LATE_CIRCLES = [
    {"gluon._saved_model", "gluon._summary", "gluon.block", "gluon.hybrid_block"}
    | {"gluon.nn.activations", "gluon.nn.basic_layers", "gluon.nn.normalization"}
    | {"gluon.symbol_block"},
    {"gluon.constant", "gluon.parameter", "gluon.parameter_dict"},
    {"gluon.contrib.estimator.checkpoints", "gluon.contrib.estimator.event_handler"},
    {"image.detection", "image.detection_iterator"},
    {"symbol.graph", "symbol.symbol"},
]


def paths(tree: str) -> Iterator[str]:
    """The paths of a tree of imports: `a::{b, c::d}` is `a::b` and `a::c::d`."""
    head, brace, rest = tree.strip().partition("{")
    if not brace:
        yield head.split(" as ")[0].strip()
        return
    depth, start = 0, 0
    inner = rest[: rest.rindex("}")] + ","
    for at, char in enumerate(inner):
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            for path in paths(inner[start:at]) if inner[start:at].strip() else ():
                yield head + path
            start = at + 1


def target(module: str, path: str, known: dict[str, str]) -> str | None:
    """The file that a path leads to: the longest beginning of it that is one."""
    parts = path.split("::")
    base = module.split("/")
    if parts[0] == "crate":
        base = []
        parts = parts[1:]
    elif parts[0] in {"super", "self"}:
        while parts and parts[0] in {"super", "self"}:
            base = base[:-1] if parts[0] == "super" else base
            parts = parts[1:]
    else:
        return None
    whole = base + parts
    beginnings = ("/".join(whole[:n]) for n in range(len(whole), 0, -1))
    return next((name for name in beginnings if name in known), None)


def imports(known: dict[str, str]) -> dict[str, set[str]]:
    """What each file imports, or names by its whole path. To show parts is not to use them."""
    edges = {}
    for module, code in known.items():
        # In a module inside a file, `super` is that file.
        code = re.sub(r"^([ \t]+use )super::", r"\1self::", code, flags=re.MULTILINE)
        trees = re.findall(r"^[ \t]*use ([^;]+);", code, re.MULTILINE)
        named = [path for tree in trees for path in paths(tree)]
        named += re.findall(r"\bcrate(?:::\w+)+", re.sub(r"\buse [^;]+;", "", code))
        found = {target(module, path, known) for path in named}
        edges[module] = {name for name in found if name and name != module}
    return edges


def circles(edges: dict[str, set[str]]) -> list[set[str]]:
    """Strongly connected components of more than one file."""

    def reach(start: str, along: dict[str, set[str]]) -> set[str]:
        seen, todo = {start}, [start]
        while todo:
            new = along[todo.pop()] - seen
            seen |= new
            todo += new
        return seen

    back: dict[str, set[str]] = {name: set() for name in edges}
    for name, others in edges.items():
        for other in others:
            back[other].add(name)
    found, left = [], set(edges)
    while left:
        name = min(left)
        circle = reach(name, edges) & reach(name, back)
        left -= circle
        if len(circle) > 1:
            found.append(circle)
    return found


def test_paths_of_a_tree():
    tree = "super::{a::{b, c as d}, e,}"
    assert list(paths(tree)) == ["super::a::b", "super::a::c", "super::e"]


def test_a_circle_is_found():
    edges = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a", "c"}}
    assert circles(edges) == [{"b", "c"}]


def test_files_import_one_another_in_no_other_circles():
    key = sorted
    assert sorted(circles(imports(modules())), key=key) == sorted(CIRCLES, key=key)


def python_modules() -> dict[str, ast.Module]:
    """The code of every module by its name; that of the binding is empty."""
    found = {"rsnet._core": ast.parse("")}
    for path in sorted(PYTHON.rglob("*.py")):
        parts = path.relative_to(PYTHON).with_suffix("").parts
        name = ".".join(["rsnet", *parts]).removesuffix(".__init__")
        found[name] = ast.parse(path.read_text())
    return found


def statements(body: list[ast.stmt], within_functions: bool) -> Iterator[ast.stmt]:
    """Those that run, also what they hold, without what is there for type checkers."""
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from statements(node.orelse, within_functions)
            continue
        yield node
        if within_functions or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for part in ("body", "orelse", "finalbody", "handlers"):
                yield from statements(getattr(node, part, []), within_functions)


def imported(module: str, node: ast.stmt, known: set[str], is_package: bool) -> set[str]:
    """The modules that a statement imports."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names} & known
    if not isinstance(node, ast.ImportFrom):
        return set()
    parts = module.split(".")
    base = parts[: len(parts) + is_package - node.level] if node.level else []
    origin = ".".join([*base, *([node.module] if node.module else [])])
    found = {f"{origin}.{alias.name}" for alias in node.names}
    return {name if name in known else origin for name in found} & known


def python_imports(within_functions: bool = False) -> dict[str, set[str]]:
    modules = python_modules()
    packages = {name.rpartition(".")[0] for name in modules}
    return {
        name: set().union(
            *(
                imported(name, node, set(modules), name in packages)
                for node in statements(tree.body, within_functions)
            )
        )
        - {name}
        for name, tree in modules.items()
    }


def test_modules_of_python_import_one_another_in_no_circles():
    assert circles(python_imports()) == []


def test_modules_of_python_reach_one_another_in_no_other_circles():
    late = [{f"rsnet.{name}" for name in circle} for circle in LATE_CIRCLES]
    found = circles(python_imports(within_functions=True))
    assert sorted(found, key=sorted) == sorted(late, key=sorted)


def test_the_package_of_operators_knows_none_of_its_interfaces():
    faces = {f"rsnet.{name}" for name in ("operator", "op", "user_op", "sbp", "sbp_rules")}
    upward = [
        (module, other)
        for module, others in python_imports(within_functions=True).items()
        if module.startswith(("rsnet._operators", "rsnet._sbp"))
        for other in others
        if other in faces or other.startswith("rsnet.oneflow")
    ]
    assert upward == []
    named = [
        path.name
        for path in (*PYTHON.glob("_operators/**/*.py"), *PYTHON.glob("_sbp/*.py"))
        if "rsnet.oneflow" in path.read_text()
    ]
    assert named == []


def test_imports_within_functions_are_found_where_they_are_asked_for():
    early, late = python_imports(), python_imports(within_functions=True)
    assert "rsnet.cuda._loader" in late["rsnet.context"] - early["rsnet.context"]
    assert {"rsnet.ndarray._register", "rsnet.base"} <= early["rsnet.ndarray._methods"]

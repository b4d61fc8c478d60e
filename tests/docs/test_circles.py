"""Rust files that import one another in a circle are the pairs of a list, which may only shrink;
modules of Python do not, but for a few by imports within functions.
"""

import ast
import re
from collections.abc import Iterator

from places import ROOT
from rust_code import modules

PYTHON = ROOT / "python" / "rsnet"

#: Pairs of files whose functions call one another or whose types hold one another.
CIRCLES = [
    {"executor/autograd/tape_builder", "executor/autograd/walk"},
    {"graph/infer/assume", "graph/infer/joint"},
    {"graph/json/backward", "graph/json/build"},
    {"operator/def", "operator/gradient"},
    {"operator/device", "operator/kernel"},
    {"operator/literal", "operator/value"},
    {"ops/vision/deformable", "ops/vision/deformable_columns"},
    {"py/operator", "py/operator_gradient"},
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


def paths(tree: str) -> Iterator[tuple[str, str]]:
    """The paths of a tree of imports, each with the name that it is imported under:
    `a::{b, c::d as e}` gives `a::b` as `b` and `a::c::d` as `e`.
    """
    head, brace, rest = tree.strip().partition("{")
    if not brace:
        path, _, name = head.strip().partition(" as ")
        path = path.removesuffix("::self")
        yield path, name.strip() or path.rpartition("::")[2]
        return
    depth, start = 0, 0
    inner = rest[: rest.rindex("}")] + ","
    for at, char in enumerate(inner):
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            for path, name in paths(inner[start:at]) if inner[start:at].strip() else ():
                whole = (head + path).removesuffix("::self")
                yield whole, whole.rpartition("::")[2] if name == "self" else name
            start = at + 1


USE = re.compile(r"^[ \t]*(pub(?:\([^)]*\))? )?use ([^;]+);", re.MULTILINE)


class Imports:
    """What the files of a crate import. A name is followed through the files that only show it
    (`pub use`, and `use super::name` of what the parent imports) to the one that defines it.

    What a file takes from the files below it, by paths without `crate` or `super`, is not counted:
    these are its parts.
    """

    def __init__(self, known: dict[str, str]) -> None:
        #: In a module inside a file, `super` is that file.
        inside = re.compile(r"^([ \t]+use )super::", re.MULTILINE)
        self.code = {name: inside.sub(r"\1self::", code) for name, code in known.items()}
        self.names = {
            module: {name: path for _, tree in USE.findall(code) for path, name in paths(tree)}
            for module, code in self.code.items()
        }

    def target(self, module: str, path: str, seen: frozenset[str] = frozenset()) -> str | None:
        """The file that defines what a path in `module` leads to, if it is one of the crate."""
        parts, base = path.split("::"), module.split("/")
        if parts[0] == "crate":
            base = []
        elif parts[0] not in {"super", "self"}:
            return None
        while parts and parts[0] in {"crate", "super", "self"}:
            base = base[:-1] if parts[0] == "super" else base
            parts = parts[1:]
        whole = base + parts
        lengths = range(len(whole), 0, -1)
        length = next((n for n in lengths if "/".join(whole[:n]) in self.code), None)
        if length is None:
            return None
        file, rest = "/".join(whole[:length]), whole[length:]
        shown = self.names[file].get(rest[0]) if rest else None
        if shown is None or f"{file}::{rest[0]}" in seen:
            return file
        further = "::".join([shown, *rest[1:]])
        seen |= {f"{file}::{rest[0]}"}
        below = "/".join([file, further.partition("::")[0]]) in self.code
        return self.target(file, f"self::{further}" if below else further, seen)

    def edges(self) -> dict[str, set[str]]:
        """The files that each file uses. A file that only shows a name does not use it."""
        edges = {}
        for module, code in self.code.items():
            rest = USE.sub("", code)
            words = set(re.findall(r"\w+", rest))
            named = set(re.findall(r"\b(?:crate|super)(?:::\w+)+", rest))
            for shows, tree in USE.findall(code):
                named |= {path for path, name in paths(tree) if not shows or name in words}
            above = {path for path in named if not path.startswith("self::")}
            found = {self.target(module, path) for path in above}
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
    names = [("super::a::b", "b"), ("super::a::c", "d"), ("super::e", "e")]
    assert list(paths(tree)) == names
    both = [("super::a", "a"), ("super::a::b", "b")]
    assert list(paths("super::a::{self, b}")) == both


def test_a_name_is_followed_to_the_file_that_defines_it():
    files = {
        "a": "mod b;\npub use b::{Thing as Shown, other};\nuse crate::c::Used;",
        "a/b": "use super::Used;\nfn f() { super::d::g() }",
        "a/d": "use crate::a::Shown;",
        "c": "pub use crate::a::d::Passed;\nuse crate::a::other::Deep;",
    }
    edges = Imports(files).edges()
    assert edges == {"a": {"c"}, "a/b": {"c", "a/d"}, "a/d": {"a/b"}, "c": {"a/b"}}


def test_a_circle_is_found():
    edges = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a", "c"}}
    assert circles(edges) == [{"b", "c"}]


def test_files_import_one_another_in_no_other_circles():
    key = sorted
    assert sorted(circles(Imports(modules()).edges()), key=key) == sorted(CIRCLES, key=key)


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

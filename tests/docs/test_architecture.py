"""What ARCHITECTURE.md says is so: what the Rust rooms import, where unsafe code is, and which
files there are.
"""

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
TESTS = re.compile(r"tests?\.rs$|_tests|/tests/|/testing\.rs$|/loom_models/")


def sources():
    """Rust files by path below `rust/`, without their tests, comments and strings."""
    for path in sorted((ROOT / "rust").rglob("*.rs")):
        name = path.relative_to(ROOT / "rust").as_posix()
        if not TESTS.search(name):
            code = re.split(r"#\[cfg\((?:all\()?test", path.read_text())[0]
            yield name, re.sub(r'//.*|"(?:[^"\\]|\\.)*"', "", code)


def room(name):
    return name.split("/")[0].removesuffix(".rs")


def test_rooms_import_what_the_diagram_says():
    drawn = {}
    for line in re.findall(r"^(\w+(?:, \w+)*) → (.*)$", TEXT, re.MULTILINE):
        for one in line[0].split(", "):
            drawn[one] = set(line[1].split(", "))
    rooms = {p.name for p in (ROOT / "rust").iterdir() if p.is_dir()}
    imported = defaultdict(set)
    for name, code in sources():
        if room(name) in rooms:
            imported[room(name)].update(re.findall(r"\bcrate::(\w+)", code))
    found = {one: names & rooms - {one} for one, names in imported.items()}
    assert drawn == {one: names for one, names in found.items() if names}
    order = list(drawn)  # from above to below
    upward = [(a, b) for a in order for b in drawn[a] if b in order[: order.index(a)]]
    assert upward == []


def test_unsafe_code_is_where_the_list_says():
    [listed] = re.findall(r"\*\*Unsafe\*\* code is in (.*?)\. Each block", TEXT, re.DOTALL)
    places = re.findall(r"`([^`]+)`", listed)
    unsafe = {name for name, code in sources() if re.search(r"\bunsafe\b", code)}
    assert [name for name in unsafe if not name.startswith(tuple(places))] == []
    assert [place for place in places if not any(name.startswith(place) for name in unsafe)] == []


def braced(text):
    """Paths of a text: `a/{b,c}.rs` is `a/b.rs` and `a/c.rs`."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for path in re.findall(r"`([^`]+)`", text):
        head, brace, rest = path.partition("{")
        inner, _, tail = rest.partition("}")
        yield from (head + one + tail for one in inner.split(",")) if brace else (path,)


def test_files_of_the_executor_and_of_the_engine_are_all_described():
    engine = (ROOT / "rust" / "engine" / "README.md").read_text()
    for place, text in (("executor", TEXT), ("engine", engine)):
        described = set(braced(text))
        of_place = (name for name, _ in sources() if name.startswith(f"{place}/"))
        missing = {name.removeprefix(f"{place}/") for name in of_place} - described
        assert {name for name in missing if not name.endswith("mod.rs")} == set()


def test_modules_of_the_package_are_all_described():
    named = {path.removesuffix(".py").rstrip("/") for path in braced(TEXT)}
    package = ROOT / "python" / "rsnet"
    found = {path.stem for path in package.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert found - named - {"__init__", "__pycache__"} == set()

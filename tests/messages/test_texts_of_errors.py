"""Every text that the package raises says what was expected; those that do not yet are counted."""

import ast
import re
from collections import Counter
from pathlib import Path

from places import ROOT

import rsnet as mx

PACKAGE = Path(mx.__file__).parent
RUST = ROOT / "rust"
# Texts of MXNet that programs parse or search for, and of what there is not.
KEPT = re.compile(
    r"^(Find name|Data provided by|Duplicated parameter names|Too many slices|cannot (read|write))"
    r"|not in rsnet|not supported|has no (attribute|operator)|\bcall .* first\b|no current batch"
    r"|does not define|Can only specify known|compose only accept|is deprecated"
)
# Functions that add "expected" themselves.
FORMS = {"invalid", "unknown", "wrong"}
# Texts of other forms by file. The numbers fall; a new text says "invalid X v: expected ...".
OTHERS = {
    "_half_private/base.py": 1, "_half_private/model.py": 1, "_operators/attributes.py": 1,
    "_operators/custom_op.py": 1, "_operators/decorator.py": 1, "_operators/library.py": 2,
    "_operators/property_node.py": 1,
    "_operators/user/contexts.py": 1, "_operators/user/definition.py": 1,
    "_operators/user/gradient.py": 2, "_operators/user/registration.py": 2, "context.py": 1,
    "cuda/_loader.py": 3, "image/functions.py": 1,
    "optimizer/updater.py": 1, "parameter.py": 1, "recordio.py": 1, "_sbp/context.py": 1,
    "symbol/random.py": 1, "_text_files.py": 1,
    "test_utils/compare.py": 5, "test_utils/data.py": 1, "test_utils/digits.py": 1,
    "test_utils/programs.py": 1, "tools/im2rec.py": 1,
}  # fmt: skip


def literal(node):
    """The text of an expression, with {} for what is computed; None if it is not a text."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(
            part.value if isinstance(part, ast.Constant) else "{}" for part in node.values
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = literal(node.left), literal(node.right)
        return None if parts == (None, None) else "".join(part or "{}" for part in parts)
    return None


def raised(source):
    """The texts that `raise` statements of a module make themselves, with their lines."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            if getattr(node.exc.func, "attr", getattr(node.exc.func, "id", "")) in FORMS:
                continue
            texts = [literal(argument) for argument in node.exc.args]
            sentences = [text for text in texts if text and " " in text]
            if sentences and not any("expected" in text for text in sentences):
                yield node.lineno, sentences[0]


def test_raised_texts_say_what_was_expected():
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        others = [text for _, text in raised(path.read_text()) if not KEPT.search(text)]
        if others:
            found[path.relative_to(PACKAGE).as_posix()] = others
    more = {file: texts for file, texts in found.items() if len(texts) > OTHERS.get(file, 0)}
    assert not more, 'write "invalid X v: expected ..."'
    fewer = {
        file: len(found.get(file, ())) for file, n in OTHERS.items() if len(found.get(file, ())) < n
    }
    assert not fewer, "lower the numbers of OTHERS to these, and take out those that are 0"


def test_what_is_raised_is_found():
    source = """
def f(x):
    if x:
        raise ValueError(f"{x} is " "wrong")
    raise TypeError("invalid x: expected " + names)
    raise fail(x, "too long " + x)
    raise invalid(x, "length of it", n, "a small one")
"""
    assert sorted(raised(source)) == [(4, "{} is wrong"), (6, "too long {}")]


# Texts of the core that do not say what was expected, the most in each room: states in which a
# call is impossible, refusals of the system, and sentences of MXNet, NumPy and Python that
# programs match. What `Error::invalid` and `Error::argument` make always says it.
OTHERS_OF_ROOMS = {
    "cuda": 2, "engine": 9, "executor": 2, "graph": 9, "image": 7,
    "ndarray": 1, "operator": 5, "ops": 6, "plugin": 13, "py": 16,
}  # fmt: skip
MADE_IN_RUST = re.compile(
    r"(?:Error::(?:value|type_|index|key|parameter|io|execution|not_implemented)"
    r'|Py\w+Error::new_err)\(\s*(?:format!\(\s*)?"((?:[^"\\]|\\.)*)"'
)


def made_in_rust(source):
    """The texts of errors that code outside of tests and comments makes."""
    code = re.split(r"#\[cfg\((?:all\()?test", source)[0]
    return MADE_IN_RUST.findall(re.sub(r"^\s*//.*", "", code, flags=re.MULTILINE))


def test_texts_of_the_core_say_what_was_expected():
    found = Counter()
    for path in RUST.rglob("*.rs"):
        place = path.relative_to(RUST).with_suffix("")
        if "test" not in str(place) and "loom_models" not in place.parts:
            texts = made_in_rust(path.read_text())
            found[place.parts[0]] += sum("expect" not in text for text in texts)
    more = {room: n for room, n in found.items() if n > OTHERS_OF_ROOMS.get(room, 0)}
    assert not more, 'write Error::invalid, or "...: expected ..."'


def test_texts_in_rust_are_found():
    source = """
    // Error::value("of a comment")
    Err(Error::value(format!("the \\"name\\" {n}")))
    PyTypeError::new_err("wrong kind")
    Error::invalid("n", n, "1")
    #[cfg(test)]
    Error::value("of a test")
    """
    assert made_in_rust(source) == ['the \\"name\\" {n}', "wrong kind"]

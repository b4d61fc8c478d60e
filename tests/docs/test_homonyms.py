"""Types of Rust that share a name within one room are those of this list, which may only shrink."""

import re
from collections import Counter

from rust_code import modules

HOMONYMS = {
    "engine": {"Locks"},
    "ops/tensor": {"Distribution"},
    "plugin": {"Learnt"},
}

TYPE = re.compile(
    r"^ *(?:pub(?:\([^)]*\))? )?(?:unsafe )?(?:struct|enum|trait) (\w+)", re.MULTILINE
)


def room(module: str) -> str:
    """The folder of a file under `rust`; for operators and kernels, the one below."""
    parts = module.split("/")
    return "/".join(parts[: 2 if parts[0] in ("ops", "kernels") else 1])


def homonyms(code: dict[str, str]) -> dict[str, set[str]]:
    """Names that several types of one room have."""
    counts = Counter((room(module), name) for module in code for name in TYPE.findall(code[module]))
    found: dict[str, set[str]] = {}
    for (where, name), count in counts.items():
        if count > 1:
            found.setdefault(where, set()).add(name)
    return found


def test_homonyms_are_found():
    code = {
        "graph/a": "pub(super) struct Place {",
        "graph/b/c": "enum Place {\n    struct Other;",
        "ops/nn/a": "trait Place {",
        "ops/vision/a": "pub struct Place;",
    }
    assert homonyms(code) == {"graph": {"Place"}}


def test_types_of_one_room_have_names_of_their_own():
    assert homonyms(modules()) == HOMONYMS

"""The code of rsnet's Rust files, for tests that read it."""

import re

from places import ROOT

RUST = ROOT / "rust"
_TESTS = re.compile(r"tests?\.rs$|_tests|/tests/|/testing\.rs$|/loom_models/")


def modules() -> dict[str, str]:
    """The code of every file by its module path, without tests, comments and strings."""
    found = {}
    for path in sorted(RUST.rglob("*.rs")):
        name = path.relative_to(RUST).as_posix()
        if name == "lib.rs" or _TESTS.search(name):
            continue
        code = re.split(r"#\[cfg\((?:all\()?test\b[^\n]*\n(?:pub )?mod \w+ {", path.read_text())[0]
        code = re.sub(r'//.*|"(?:[^"\\]|\\.)*"', "", code)
        found[name.removesuffix(".rs").removesuffix("/mod")] = code
    return found

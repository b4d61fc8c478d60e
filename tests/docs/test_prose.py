"""The check of the width of prose sees comments, documents and texts of every language."""

from pathlib import Path

import pytest
from programs import tool

prose = tool("prose")

LONG = "word " * 20 + "end"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.rs", f"/// {LONG}\n"),
        ("a.rs", f"let x = 1; // {LONG}\n"),
        ("a.rs", f'let x = "{LONG}";\n'),
        ("a.hpp", f"/* A.\n * {LONG} */\n"),
        ("a.cu", f"// {LONG}\n"),
        ("a.cc", f'throw Failure("{LONG}");\n'),
        ("a.py", f"# {LONG}\n"),
        ("a.py", f'"""A.\n\n..., "Counter": {LONG}\n"""\n'),
        ("a.pyi", f'"""{LONG}"""\n'),
        ("a.md", f"{LONG}\n"),
        ("a.yml", f"# {LONG}\n"),
        ("a.toml", f"x = 1 # {LONG}\n"),
        ("Makefile", f"all: ## {LONG}\n"),
        (".ci/run", f"# {LONG}\n"),
    ],
)
def test_long_prose_is_found(name, text):
    found = prose.long_lines(Path(name), text)
    assert len(found) == 1 and len(text.split("\n")[found[0] - 1]) > prose.WIDTH


CALL = "f(" + "1, " * 40 + ")"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.rs", f"{CALL};\n"),
        ("a.rs", f"/// ```\n/// {CALL};\n/// ```\n"),
        ("a.hpp", f"{CALL};\n"),
        ("a.py", f'"""A.\n\n>>> {CALL}\n... {CALL}\n"""\n{CALL}\n'),
        ("a.pyi", f"def f({CALL[2:-1]}): ...\n".replace("1", "a")),
        ("a.md", f"```python\n{CALL}\n```\n| {LONG} |\n"),
        ("Makefile", f"all:\n\t{CALL}\n"),
        ("a.rs", f"// https://example.com/{'a' * 100}\n"),
    ],
)
def test_code_tables_and_addresses_may_be_long(name, text):
    assert prose.long_lines(Path(name), text) == []

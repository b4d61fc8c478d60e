"""The environment variables that rsnet reads are those in the table of docs/engine.md."""

import re

import pytest
from places import ROOT

PAGE = (ROOT / "docs" / "engine.md").read_text().split("\n## Environment variables\n")[1]
ROWS = re.findall(r"^\| (`.*?) \| (.*) \|$", PAGE.split("\n## ")[0], re.MULTILINE)
READ = {name for names, _ in ROWS for name in re.findall(r"`(\w+)`", names)}
IGNORED = {
    name for names, text in ROWS if "without effect" in text for name in re.findall(r"\w+", names)
}
# A text that is the name of a variable, whole or up to a part that is filled in, and other names
# that are asked for.
NAMED = re.compile(
    r'"((?:CUDA|MXNET|NNVM|OMP|RSNET|XDG)_[A-Z\d_]+)["{]'
    r'|(?:environ\.get\(|environ\[|_find\(|env::var(?:_os)?\()"(\w+)"'
)


def read_by(*files):
    """The names of variables that the code of these files reads."""
    return {a or b for file in files for a, b in NAMED.findall(file.read_text())}


def of(folder, ending):
    return sorted((ROOT / folder).rglob(f"*.{ending}"))


@pytest.fixture(scope="module")
def read():
    return read_by(*of("python/rsnet", "py"), *of("rust", "rs"))


def test_every_variable_that_is_read_is_in_the_table(read):
    prefixes = {name for name in read if name.endswith("_")}
    assert not {name for name in read - prefixes if name not in READ - IGNORED}
    for prefix in prefixes:
        assert any(name.startswith(prefix) for name in READ)


def test_every_variable_of_the_table_is_read(read):
    prefixes = tuple(name for name in read if name.endswith("_"))
    listed = READ - IGNORED
    assert {name for name in listed if name not in read and not name.startswith(prefixes)} == set()
    assert IGNORED and not IGNORED & read


def test_a_variable_without_effect_says_so():
    assert "MXNET_OMP_MAX_THREADS" in IGNORED and "MXNET_ENGINE_TYPE" not in IGNORED


def test_variables_of_the_tests_are_documented():
    ours = {"CARGO_TARGET_DIR", "PYTHONPATH", "RSNET_EMULATED_SANITIZE"}  # set by tests for tests
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    asked = re.compile(r'environ\.get\("(\w+)"')
    names = {name for file in of("tests", "py") for name in asked.findall(file.read_text())}
    assert {n for n in names - READ - ours if f"`{n}" not in contributing} == set()


def test_names_in_code_are_found(tmp_path):
    code = tmp_path / "code.rs"
    code.write_text('env::var("OTHER"), number("MXNET_NUMBER"), "RSNET_KEY_{key}", "MXNET_no"')
    assert read_by(code) == {"OTHER", "MXNET_NUMBER", "RSNET_KEY_"}

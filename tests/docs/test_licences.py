"""What the wheel links has the licences that deny.toml allows."""

import json
import re
import shutil
import subprocess

import pytest
from places import ROOT

pytestmark = pytest.mark.process


def allowed():
    text = (ROOT / "deny.toml").read_text()
    listed = re.search(r"^allow = \[(.*?)\]", text, re.DOTALL | re.MULTILINE)
    return set(re.findall(r'"([^"]+)"', listed.group(1)))


def permits(expression, names):
    """Whether a licence of every part of an expression (of ``AND`` and ``OR``) is among names."""
    parts = re.sub(r"[()]", "", expression).split(" AND ")
    return all(set(re.split(r" OR |\s*/\s*", part)) & names for part in parts)


def test_an_expression_is_permitted_by_one_of_its_choices_in_each_part():
    assert permits("MIT OR GPL-3.0", {"MIT"}) and permits("GPL-3.0/MIT", {"MIT"})
    assert permits("(MIT OR Zlib) AND IJG", {"Zlib", "IJG"})
    assert not permits("(MIT OR Zlib) AND IJG", {"MIT", "Zlib"})


def test_licences_of_dependencies_are_allowed():
    if shutil.which("cargo") is None:
        pytest.skip("no cargo")
    command = ["cargo", "metadata", "--format-version=1", "--all-features", "--locked"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True)
    names = allowed()
    packages = json.loads(found.stdout)["packages"]
    refused = {
        package["name"]: package["license"]
        for package in packages
        if not permits(package["license"] or "", names)
    }
    assert len(packages) > 20 and refused == {}

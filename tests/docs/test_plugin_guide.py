"""The page on compiled operators: its sources are written to files, its commands and code run."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from places import ROOT
from processes import run

pytestmark = pytest.mark.process

BLOCK = re.compile(r"```(c|toml|rust|console|python)\n(.*?)```", re.DOTALL)

#: Where the sources of the page are written to.
FILES = {"c": "scale.c", "toml": "Cargo.toml", "rust": "src/lib.rs"}


def test_the_page_runs(tmp_path):
    text = (ROOT / "docs" / "plugins.md").read_text()
    for example in ("swish.cpp", "huber.cc"):
        shutil.copy(ROOT / "examples" / "plugin" / example, tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "rsnet").symlink_to(ROOT)
    shutil.copy(ROOT / "Cargo.lock", tmp_path)  # the versions that are known to be there
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "python").symlink_to(sys.executable)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CARGO_TARGET")}
    path = {**environment, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}  # fmt: skip
    code = [f"import os; os.chdir({str(tmp_path)!r})"]
    for language, block in BLOCK.findall(text):
        if language in FILES:
            (tmp_path / FILES[language]).write_text(block)
        elif language == "console":
            done = subprocess.run(
                ["bash", "-ec", block], cwd=tmp_path, env=path, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
        else:
            code.append(block)
    done = run("\n".join(code))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['doc_scale']"

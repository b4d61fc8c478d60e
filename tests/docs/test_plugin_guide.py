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

BLOCK = re.compile(r"```(c|console|python)\n(.*?)```", re.DOTALL)


def test_the_page_runs(tmp_path):
    text = (ROOT / "docs" / "plugins.md").read_text()
    for example in ("swish.cpp", "huber.cc"):
        shutil.copy(ROOT / "examples" / "plugin" / example, tmp_path)
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "python").symlink_to(sys.executable)
    path = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}  # fmt: skip
    code = [f"import os; os.chdir({str(tmp_path)!r})"]
    for language, block in BLOCK.findall(text):
        if language == "c":
            (tmp_path / "scale.c").write_text(block)
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

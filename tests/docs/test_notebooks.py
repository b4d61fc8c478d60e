"""The example notebooks run, and show what is stored in them."""

import json
import sys
from pathlib import Path

import pytest
from notebooks import code_cells, run, stored, text_of
from test_packaging import Checker, in_a_process

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))


def failures(path):
    """Runs a notebook; returns a text for every cell that shows something else."""
    namespace, found = {"__name__": "__main__"}, []
    for number, cell in enumerate(code_cells(json.loads(Path(path).read_text())), start=1):
        for want, got in zip(stored(cell), run(cell, namespace)):
            if not (want == got or (want and Checker().check_output(want, got, 0))):
                found.append(f"cell {number} shows\n{got}\ninstead of\n{want}")
    return "\n".join(found)


@pytest.mark.process
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_cells_show_what_is_stored(path):
    """If it fails for a good reason: python tests/support/notebooks.py FILE"""
    in_a_process(f"import sys, test_notebooks as t; sys.exit(t.failures({str(path)!r}) or 0)")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_the_file_is_a_notebook(path):
    notebook = json.loads(path.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) >= (4, 5)
    identifiers = [cell["id"] for cell in notebook["cells"]]
    assert len(set(identifiers)) == len(identifiers)
    for cell in notebook["cells"]:
        assert cell["cell_type"] in ("markdown", "code") and text_of(cell["source"]).strip()
    assert "rsnet" in sys.modules

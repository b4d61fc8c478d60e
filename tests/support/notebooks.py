"""Runs the cells of a notebook, without Jupyter.

``python tests/support/notebooks.py FILE`` runs a notebook and stores what its cells show.
"""

import ast
import contextlib
import io
import json
import sys
from pathlib import Path


def text_of(lines):
    """A multi-line text of the format: a string or a list of strings."""
    return lines if isinstance(lines, str) else "".join(lines)


def code_cells(notebook):
    """The code cells of a notebook in order."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def stored(cell):
    """What a cell showed when it was stored: printed text, then the value of its last line."""
    printed = [text_of(o["text"]) for o in cell["outputs"] if o["output_type"] == "stream"]
    values = [
        text_of(o["data"]["text/plain"])
        for o in cell["outputs"]
        if o["output_type"] == "execute_result"
    ]
    return "".join(printed), "".join(values)


def run(cell, namespace):
    """Runs a cell; returns what it printed and the text of its last expression."""
    tree = ast.parse(text_of(cell["source"]))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    value, printed = None, io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), namespace)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), namespace)
    return printed.getvalue(), "" if value is None else repr(value)


def outputs(printed, value, number):
    """The outputs of a cell in the notebook format."""
    found = []
    if printed:
        lines = printed.splitlines(keepends=True)
        found.append({"name": "stdout", "output_type": "stream", "text": lines})
    if value:
        data = {"text/plain": value.splitlines(keepends=True)}
        found.append(
            {
                "data": data,
                "execution_count": number,
                "metadata": {},
                "output_type": "execute_result",
            }
        )
    return found


def store(path):
    """Runs a notebook and writes it back with its outputs."""
    notebook = json.loads(Path(path).read_text())
    namespace = {"__name__": "__main__"}
    for number, cell in enumerate(code_cells(notebook), start=1):
        cell["execution_count"] = number
        cell["outputs"] = outputs(*run(cell, namespace), number)
    Path(path).write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    store(sys.argv[1])

"""Runs the Python blocks of a document. It imports nothing of rsnet but what the blocks do."""

import re

from places import ROOT


def code_blocks(document):
    """The text of every Python block."""
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


def run_blocks(document):
    """Runs the blocks in order, in one namespace."""
    namespace = {}
    for block in code_blocks(document):
        exec(compile(block, document, "exec"), namespace)

"""The program that weakens memory orders knows all of them, and its exceptions are still there."""

import re

from places import ROOT
from programs import tool
from rust_code import modules

mutants = tool("loom_mutants")
SITES = list(mutants.sites([]))


def test_every_memory_order_of_the_engine_is_weakened():
    weakened = {file.removeprefix("rust/").removesuffix(".rs") for file, *_ in SITES}
    orders = re.compile(r"\bOrdering::(?:Acquire|Release|AcqRel|SeqCst)\b")
    modelled = ("engine/", "fork_join", "ndarray/access_latch")
    with_orders = {
        name
        for name, code in modules().items()
        if name.startswith(modelled) and orders.search(code)
    }
    assert len(with_orders) > 10 and with_orders <= weakened
    assert all(weak != line and not orders.search(weak) for _, _, line, weak in SITES)


def test_exceptions_are_of_lines_and_files_that_exist():
    lines = [line for file, _, line, _ in SITES if file not in mutants.UNMODELLED]
    assert not [text for text in mutants.ALLOWED if not any(text in line for line in lines)]
    assert not [file for file in mutants.UNMODELLED if file not in {file for file, *_ in SITES}]
    assert all((ROOT / file).is_file() for file in mutants.UNMODELLED)

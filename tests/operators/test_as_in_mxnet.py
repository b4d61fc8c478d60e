"""Every operator case beside MXNet 1.9.1, forward and backward, in each of its dtypes.

    make compare MXNET_PYTHON=/path/to/python [CASES_SEED=7]

Skipped unless `MXNET_PYTHON` names a Python that has MXNet. What differs on purpose, or where MXNet
fails, is declared in `tests/support/mxnet_differences.py`; a declaration that is no longer needed
is an error, too. Dtypes that MXNet refuses, beside one that it takes, are not counted.
"""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import all_cases  # noqa: F401
import numpy as np
import pytest
from cases import CASES
from mxnet_differences import DIFFERENCES
from places import ROOT
from results import dtypes_of

SCRIPT = ROOT / "tests" / "support" / "results.py"
PYTHON = os.environ.get("MXNET_PYTHON")

MISSING = ("has no attribute",)  # rsnet's own operators


def results(python, package, folder):
    path = folder / f"{package}.npz"
    command = [python, "-W", "ignore", str(SCRIPT), package, str(path)]
    subprocess.run(command, check=True, capture_output=True)
    with np.load(path) as stored:
        return dict(stored)


def case_of(name):
    """The case and the dtype of `op-1/int8`, or of `op-1`, where it is the first of the case."""
    plain, _, dtype = name.partition("/")
    (case,) = (case for case in CASES[plain.rpartition("-")[0]] if case.id == plain)
    return case, dtype or dtypes_of(case)[0]


def declared(name):
    """The differences that cover a case."""
    return [difference for difference in DIFFERENCES if difference.covers(*case_of(name))]


def differences(ours, theirs):
    """Text by case: what differs, `None` where nothing does."""
    found = {}
    for key in sorted(set(ours) | set(theirs)):
        case, _, what = key.partition(" ")
        found.setdefault(case, None)
        mine, other = ours.get(key), theirs.get(key)
        if mine is None or other is None:
            text = "" if mine is None else str(mine)
            text = text if other is None else str(other)
            if "/" in case and other is not None:  # refused by MXNet, in a dtype of several
                continue
            if what == "error" and not any(m in text for m in MISSING):
                found[case] = f"{what} of {'rsnet' if other is None else 'MXNet'}: {text}"
        elif what != "error" and mine.shape != other.shape:
            found[case] = f"{what}: shapes {mine.shape} and {other.shape}"
        elif what != "error" and mine.dtype != other.dtype:
            found[case] = f"{what}: dtypes {mine.dtype} and {other.dtype}"
        elif what != "error":
            wide = mine.astype("float64"), other.astype("float64")
            half = case.endswith("/float16") or mine.dtype == np.float16
            rtol, atol = (3e-2, 3e-2) if half else (2e-3, 2e-4)
            if not np.allclose(*wide, rtol=rtol, atol=atol, equal_nan=True):
                found[case] = f"{what}: differs by up to {np.abs(wide[0] - wide[1]).max():.3g}"
    return found


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(not PYTHON, reason="MXNET_PYTHON names no Python with MXNet")
def test_every_case_agrees_with_mxnet(tmp_path):
    packages = (sys.executable, "rsnet", tmp_path), (PYTHON, "mxnet", tmp_path)
    with ThreadPoolExecutor() as pool:
        found = differences(*pool.map(lambda arguments: results(*arguments), packages))
    covered = {name: declared(name) for name, text in found.items() if text}
    wrong = [f"{name} {found[name]}" for name, by in covered.items() if not by]
    assert not wrong, "\n".join(wrong)
    assert len(found) > 500
    seen = {(case_of(name)[0].op, d.why) for name, by in covered.items() for d in by}
    always = {(op, d.why) for d in DIFFERENCES if not d.seldom for op in d.operators}
    assert not always - seen, "these agree"


def test_the_page_of_differences_has_the_declared_ones():
    section = (ROOT / "docs" / "differences.md").read_text().partition("## Single operators")[2]
    listed = set()
    for item in section.partition("\n## ")[0].split("\n- ")[1:]:
        names, why = " ".join(item.split()).split(": ", 1)
        listed |= {(name, why.rstrip(".")) for name in re.findall(r"`(\w+)`", names)}
    assert listed == {(op, d.why) for d in DIFFERENCES for op in d.operators}


def test_a_difference_covers_the_cases_that_have_what_it_names():
    flips = {case.params.get("axis"): case.id for case in CASES["_npi_flip"]}
    negative, absent = flips[0, -1], flips[None]
    assert [d.why for d in declared(negative)] == ["MXNet refuses negative axes"]
    assert [d.why for d in declared(absent)] == ["MXNet wants axes"]
    assert not declared(flips[0,]) and not declared("relu-0")
    assert not declared("argmax-0") and declared("argmax-0/int8")


def test_differences_are_found():
    one = {"a-0 output 0": np.ones(2), "b-0 output 0": np.ones(2), "c-0 output 0": np.ones(2)}
    two = {"a-0 output 0": np.ones(2), "b-0 output 0": np.zeros(2), "c-0 error": np.array("no")}
    found = differences(one, two)
    assert found["a-0"] is None and "differs by up to 1" in found["b-0"]
    assert found["c-0"] == "error of MXNet: no"


def test_dtypes_that_mxnet_refuses_are_not_counted():
    one = {"a-0 output 0": np.ones(2), "a-0/int8 output 0": np.ones(2, "int8")}
    refused, own = {"a-0/int8 error": np.array("no")}, {"a-0/int8 error": np.array("ours")}
    assert differences(one, one | refused)["a-0/int8"] is None
    assert differences(one | own, one)["a-0/int8"] == "error of rsnet: ours"
    assert "dtypes" in differences(one, one | {"a-0 output 0": np.ones(2, "int8")})["a-0"]

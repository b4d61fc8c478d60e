"""Names of PyTorch: what is said where a program asks for them, and the page about them."""

import pickle
import re

import pytest
from places import DOCS

import rsnet as mx
from rsnet import autograd, gluon, nd
from rsnet._pytorch_names import HINTS, hint
from rsnet.gluon import nn
from rsnet.ndarray._methods import FLUENT, FOREIGN

PAGE = (DOCS / "from_pytorch.md").read_text()
NAMES = [(place, name) for place, names in HINTS.items() for name in names]
#: What a name is an attribute of on the page.
LEFT = {
    "NDArray": "x", "nd": "torch", "mx": "torch", "autograd": "torch.autograd", "gluon.nn": "nn",
    "Block": "net", "Trainer": "optimizer",
}  # fmt: skip


@pytest.fixture
def scope(tmp_path):
    """What the code of the hints refers to."""
    net = nn.HybridSequential()
    net.add(nn.Dense(2, in_units=2))
    net.initialize()
    file = str(tmp_path / "file")
    trainer = gluon.Trainer(net.collect_params(), "adam")
    return {
        "mx": mx, "nd": nd, "nn": nn, "gluon": gluon, "autograd": autograd, "net": net,
        "trainer": trainer, "file": file, "x": nd.array([[1, 2], [3, 4]]),
        "data": nd.ones((2,)), "indices": nd.array([[0, 1], [1, 0]]),
    }  # fmt: skip


def owner_of(place, scope):
    owners = {"NDArray": scope["x"], "Block": scope["net"], "Trainer": scope["trainer"]}
    modules = {"nd": nd, "mx": mx, "autograd": autograd, "gluon.nn": nn}
    return (owners | modules)[place]


@pytest.mark.parametrize(("place", "name"), NAMES, ids=lambda part: part)
def test_asking_for_a_name_tells_what_it_is_here(place, name, scope):
    owner = owner_of(place, scope)
    with pytest.raises(AttributeError) as caught:
        getattr(owner, name)
    assert str(caught.value).endswith(hint(place, name)) and hint(place, name)
    assert not hasattr(owner, name) and name not in dir(owner)


@pytest.mark.parametrize(("place", "name"), NAMES, ids=lambda part: part)
def test_what_is_told_runs(place, name, scope):
    told = HINTS[place][name]
    if told.startswith("not needed"):
        return
    if "load" in told and "file" in told:
        save = {"Block": scope["net"].save_parameters, "Trainer": scope["trainer"].save_states}
        save.get(place, lambda file: nd.save(file, [scope["x"]]))(scope["file"])
    for code in told.split(" or "):
        if "mx.gpu()" in code and not mx.num_gpus():
            continue
        if " = " in code:
            exec(code, scope)
            continue
        before = autograd.is_recording()
        result = eval(code, scope)
        autograd.set_recording(before)
        assert result is not scope  # it ran


def test_the_page_lists_exactly_these_names():
    rows = re.findall(r"^\| `([\w.]+)` \| (.*) \|$", PAGE, re.MULTILINE)
    expected = {}
    for place, names in HINTS.items():
        for name, told in names.items():
            code = told if told.startswith("not") else f"`{told.replace(' or ', '` or `')}`"
            expected.setdefault(f"{LEFT[place]}.{name}", set()).add(code)
    listed = {}
    for name, here in rows:
        listed.setdefault(name, set()).add(here)
    assert listed == expected


def test_arrays_know_the_names_of_the_table():
    assert set(FOREIGN) == set(HINTS["NDArray"])
    assert not set(FOREIGN) & set(FLUENT)  # a method would not be made
    assert not set(dir(nd.ones((1,)))) & set(FOREIGN)
    assert "asnumpy" in dir(nd.ones((1,)))


def test_names_of_a_program_win():
    class Own(gluon.Block):
        def train(self):
            return "own"

    own = Own()
    own.to = 3
    assert own.train() == "own" and own.to == 3
    assert {"train", "to"} <= set(dir(own))
    with pytest.raises(AttributeError, match="PyTorch's eval is not needed"):
        own.eval()


def test_other_names_and_copies_are_as_before():
    with pytest.raises(AttributeError, match="NDArray' object has no attribute 'nothing'$"):
        nd.ones((1,)).nothing  # noqa: B018
    assert pickle.loads(pickle.dumps(nd.ones((2,)))).shape == (2,)

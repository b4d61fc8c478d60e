"""Memory plans as pictures."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest
from networks import mlp, sym
from PIL import Image

import rsnet as mx


def pixels_of(path):
    """Rows of an RGB PNG."""
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    with Image.open(path) as picture:
        assert picture.mode == "RGB"
        return np.asarray(picture)


def test_pictures_show_every_internal_entry(tmp_path):
    plan = mlp(64, 10).memory_plan(data=(64, 32))
    plan.draw(str(tmp_path / "plan.svg"))
    tree = ET.parse(tmp_path / "plan.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    titles = [t.text.split()[0] for t in tree.iter(f"{space}title")]
    assert titles == [e.name for e in plan.entries if e.internal and e.bytes]
    texts = " ".join(t.text for t in tree.iter(f"{space}text"))
    assert "lower bound" in texts and "backward" in texts and "kB" in texts
    plan.draw(str(tmp_path / "plan.png"))
    pixels = pixels_of(tmp_path / "plan.png")
    assert pixels.shape == (660, 1200, 3)
    # Coloured boxes, black letters, the red line of the bound.
    assert len(np.unique(pixels @ np.array([1 << 16, 1 << 8, 1]))) > 5
    assert (pixels == (210, 0, 0)).all(axis=2).any() and (pixels == 0).all(axis=2).any()


def test_a_picture_has_a_band_for_every_device(tmp_path):
    with mx.AttrScope(ctx_group="one"):
        x = sym.exp(sym.exp(sym.Variable("x"), name="<&>"))
    with mx.AttrScope(ctx_group="two"):
        net = sym.exp(x * 2)
    groups = {"one": mx.cpu(0), "two": mx.cpu(1)}
    exe = net.simple_bind(mx.cpu(), group2ctx=groups, x=(300,))
    exe.memory_plan().draw(str(tmp_path / "plan.svg"))
    texts = [
        t.text for t in ET.parse(tmp_path / "plan.svg").iter("{http://www.w3.org/2000/svg}text")
    ]
    assert {"cpu(0)", "cpu(1)"} <= set(texts)


def test_a_plan_without_entries_can_be_drawn(tmp_path):
    plan = sym.Variable("x").memory_plan(grad_req="null", x=(2,))
    for kind in ("svg", "png"):
        plan.draw(str(tmp_path / f"plan.{kind}"))
    with pytest.raises(ValueError, match="gif"):
        plan.draw(str(tmp_path / "plan.gif"))

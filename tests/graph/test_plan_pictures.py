"""Memory plans as pictures."""

import struct
import xml.etree.ElementTree as ET
import zlib

import numpy as np
import pytest
from networks import mlp, sym

import rsnet as mx


def pixels_of(path):
    """Width, height and rows of an 8-bit RGB PNG without filters."""
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    at, body = 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        content = data[at + 8 : at + 8 + size]
        (check,) = struct.unpack(">I", data[at + 8 + size : at + 12 + size])
        assert check == zlib.crc32(kind + content)
        if kind == b"IHDR":
            width, height = struct.unpack(">II", content[:8])
        body += content if kind == b"IDAT" else b""
        at += 12 + size
    rows = np.frombuffer(zlib.decompress(body), np.uint8).reshape(height, 1 + 3 * width)
    assert (rows[:, 0] == 0).all()
    return rows[:, 1:].reshape(height, width, 3)


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

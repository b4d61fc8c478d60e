"""Progress bars: redrawn on terminals, whole lines elsewhere."""

import io
import sys

import pytest

import rsnet as mx


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(stream, monkeypatch, total, batches, length=10):
    monkeypatch.setattr(sys, "stdout", stream)
    bar = mx.callback.ProgressBar(total=total, length=length)
    for n in batches:
        bar(mx.callback.BatchEndParam(epoch=0, nbatch=n, eval_metric=None, locals=None))
    return stream.getvalue()


def test_a_terminal_gets_one_line_that_is_redrawn(monkeypatch):
    text = shown(Terminal(), monkeypatch, 4, range(1, 5), length=8)
    assert text == ("\r[==------] 25%\r[====----] 50%\r[======--] 75%\r[========] 100%\n")


@pytest.mark.parametrize("total", [1, 7, 10, 1000])
def test_other_streams_get_at_most_ten_lines_an_epoch(monkeypatch, total):
    text = shown(io.StringIO(), monkeypatch, total, [*range(1, total + 1)] * 2)
    lines = text.splitlines()
    assert "\r" not in text and text.endswith("\n")
    assert len(lines) == 2 * min(total, 10)
    assert lines[-1] == "[==========] 100%"


@pytest.mark.parametrize("total", [1, 7, 10, 2000])
def test_batches_may_be_counted_from_0(monkeypatch, total):
    text = shown(io.StringIO(), monkeypatch, total, [*range(total)] * 2)
    lines = text.splitlines()
    assert len(lines) == 2 * min(total, 10)
    assert [line.split()[-1] for line in lines].count("100%") == 2 and lines[-1].endswith("100%")
    text = shown(Terminal(), monkeypatch, total, [*range(total)] * 2)
    assert text.count("\n") == 2 and text.endswith("100%\n")


def test_a_stream_without_isatty(monkeypatch):
    class Plain:
        text = ""

        def write(self, text):
            self.text += text

        def flush(self):
            pass

        def getvalue(self):
            return self.text

    assert shown(Plain(), monkeypatch, 2, [1, 2], length=2) == "[=-] 50%\n[==] 100%\n"


def test_module_checkpoint_counts_epochs_from_one():
    saved = []

    class Module:
        def save_checkpoint(self, *args):
            saved.append(args)

    save = mx.callback.module_checkpoint(Module(), "net", period=2, save_optimizer_states=True)
    for epoch in range(4):
        save(epoch)
    assert saved == [("net", 2, True), ("net", 4, True)]

"""What `fit` shows on standard error: a line that is redrawn, one per epoch, or nothing."""

import io
import logging
import re
import sys

import numpy as np
import pytest

import rsnet as mx
from rsnet.module import progress as progress_module


class Terminal(io.StringIO):
    def isatty(self):
        return True


def trained(monkeypatch, stream, **options):
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress_module, "PERIOD_S", 0.0)
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    module = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"))
    x = np.random.uniform(-1, 1, (32, 4)).astype("float32")
    batches = mx.io.NDArrayIter(x, (x.sum(axis=1) > 0).astype("float32"), batch_size=8)
    module.fit(batches, num_epoch=2, **options)
    return stream.getvalue()


@pytest.fixture(autouse=True)
def silent_root(monkeypatch):
    monkeypatch.setattr(logging.getLogger(), "level", logging.WARNING)


def test_a_terminal_gets_one_line_that_is_redrawn_and_the_results(monkeypatch):
    text = trained(monkeypatch, Terminal())
    drawn = text.split("\r")
    first = r"Epoch 1/2  25 %  [\d,.]+ samples/s  \d:\d\d left  accuracy=\S+"
    assert any(re.match(first, line) for line in drawn)
    results = [line for line in drawn if line.endswith("\n") or "\n" in line]
    assert len(results) == 2
    assert re.match(r"Epoch 1/2  [\d,.]+ samples/s  accuracy=\S+  0:\d\d\n", results[0])


def test_what_does_not_fit_on_the_line_is_left_out_whole(monkeypatch):
    monkeypatch.setenv("COLUMNS", "64")
    text = trained(monkeypatch, Terminal(), eval_metric=["acc", "ce"])
    drawn = [line.rstrip() for line in text.split("\r") if "left" in line]
    assert drawn
    for line in drawn:
        assert len(line) < 64 and "cross" not in line
        assert re.search(r"\d:\d\d left  accuracy=[\d.]+$", line)


def test_other_streams_get_one_line_an_epoch_with_validation(monkeypatch):
    x = np.ones((8, 4), "float32")
    held_out = mx.io.NDArrayIter(x, np.zeros(8, "float32"), batch_size=8)
    text = trained(monkeypatch, io.StringIO(), eval_data=held_out)
    assert "\r" not in text
    lines = text.splitlines()
    assert [line[:9] for line in lines] == ["Epoch 1/2", "Epoch 2/2"]
    assert all("validation accuracy=" in line for line in lines)


def test_nothing_is_shown_when_told_so(monkeypatch):
    assert trained(monkeypatch, Terminal(), progress=False) == ""
    monkeypatch.setenv("RSNET_PROGRESS", "0")
    assert trained(monkeypatch, Terminal()) == ""
    assert trained(monkeypatch, io.StringIO(), progress=True) != ""


def test_a_logger_that_reports_epochs_is_not_repeated(monkeypatch, caplog):
    with caplog.at_level(logging.INFO):
        assert trained(monkeypatch, io.StringIO()) == ""
    assert any(re.match(r"Epoch\[0\] Train-accuracy=", m) for m in caplog.messages)


def test_the_line_is_gone_where_a_callback_logs_or_raises(monkeypatch):
    seen = []

    def callback(param):
        seen.append(sys.stderr.getvalue())
        if param.nbatch == 2:
            raise RuntimeError("stop")

    stream = Terminal()
    with pytest.raises(RuntimeError, match="stop"):
        trained(monkeypatch, stream, batch_end_callback=callback)
    assert "Epoch 1/2" in seen[1] and seen[1].endswith(" \r")
    assert stream.getvalue().endswith("\r")


def test_a_progress_bar_has_the_line_for_itself(monkeypatch):
    bar = mx.callback.ProgressBar(total=4)
    text = trained(monkeypatch, Terminal(), batch_end_callback=[bar])
    assert "left" not in text and text.count("\n") == 2

"""Batches that loaders give: the same from worker processes, threads and the caller."""

import os
import pickle
import signal
from collections import namedtuple

import numpy as np
import pytest

from rsnet import nd
from rsnet.base import MXTypeError
from rsnet.gluon.data import DataLoader, SimpleDataset

pytestmark = pytest.mark.process

MODES = [{}, {"num_workers": 2}, {"num_workers": 2, "thread_pool": True}]

Pair = namedtuple("Pair", ["data", "label"])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sample", [None, {"a": 1}, 1j])
def test_samples_that_no_array_can_hold_are_refused(mode, sample):
    with pytest.raises(MXTypeError, match="invalid dtype '(object|complex128)'"):
        list(DataLoader(SimpleDataset([sample] * 4), 2, **mode))


def paired(samples):
    return [Pair(nd.array(samples), ("text", 3))]


@pytest.mark.parametrize("mode", MODES)
def test_tuples_with_names_keep_them(mode):
    batches = list(DataLoader(SimpleDataset(range(4)), 2, batchify_fn=paired, **mode))
    assert [type(batch[0]) for batch in batches] == [Pair, Pair]
    assert batches[1][0].data.asnumpy().tolist() == [2, 3]
    assert batches[1][0].label == ("text", 3)


def unportable(samples):
    return [np.array(samples), (n for n in samples) if samples[0] == 2 else None]


def test_a_batch_that_cannot_be_sent_is_an_error_and_its_worker_goes_on():
    loader = DataLoader(SimpleDataset(range(6)), 2, batchify_fn=unportable, num_workers=1)
    before = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    with pytest.raises((TypeError, pickle.PicklingError), match="generator") as error:
        list(loader)
    assert "samples [2, 3] was sent" in error.value.__notes__[0]
    assert next(iter(loader))[0].asnumpy().tolist() == [0, 1]
    process = loader._workers._workers[0].process
    assert process.is_alive()
    prefix = loader._workers._prefix
    del loader
    left = set(os.listdir("/dev/shm")) - before if before else set()
    assert not [name for name in left if name.startswith(prefix)]


def full(samples):
    signal.signal(signal.SIGBUS, signal.SIG_DFL)  # no report of pytest's
    os.kill(os.getpid(), signal.SIGBUS)


@pytest.mark.skipif(not hasattr(signal, "SIGBUS"), reason="there is no such signal")
def test_a_worker_that_finds_no_shared_memory_is_an_error_that_says_so():
    loader = DataLoader(SimpleDataset(range(6)), 2, batchify_fn=full, num_workers=1)
    with pytest.raises(RuntimeError, match=r"died with signal SIGBUS \(no space left in /dev/shm"):
        list(loader)


@pytest.mark.parametrize("mode", MODES)
def test_a_loader_may_wait_without_limit(mode):
    loader = DataLoader(SimpleDataset(range(4)), 2, timeout=float("inf"), **mode)
    assert [batch.asnumpy().tolist() for batch in loader] == [[0, 1], [2, 3]]

"""The programs in `examples/` learn what they are about, in a reduced form."""

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setenv("RSNET_PROGRESS", "0")


def blobs(rows, seed=0):
    """Images of 8 x 8 pixels around ten patterns: (images, labels, test images, test labels)."""
    random = np.random.RandomState(seed)
    patterns = random.normal(size=(10, 1, 8, 8))
    labels = random.randint(0, 10, rows)
    images = patterns[labels] + 0.5 * random.normal(size=(rows, 1, 8, 8))
    cut = rows * 4 // 5
    return images[:cut], labels[:cut], images[cut:], labels[cut:]


def test_a_bidirectional_lstm_sorts():
    import sorting

    assert sorting.train(length=4, digits=6, hidden=24, rows=1500, num_epoch=4) > 0.9


def test_matrix_factorisation_completes_a_table():
    import matrix_factorisation

    error, spread = matrix_factorisation.train(60, 50, 3, known=0.5, num_epoch=25, batch_size=50)
    assert error < 0.3 * spread


def test_an_agent_finds_the_goal():
    import policy_gradient

    before, after = policy_gradient.train(size=4, walks=32, steps=12, rounds=60)
    assert before < 0.8 < 0.95 < after


def test_a_language_model_of_lines_of_many_lengths():
    import bucketing

    choices, perplexity = bucketing.train(topics=3, hidden=32, num_epoch=3)
    assert perplexity < 0.6 * choices


@pytest.mark.parametrize("variational", [False, True])
def test_autoencoders_shorten_images(variational):
    import autoencoder

    random = np.random.RandomState(0)
    ink = random.uniform(size=(400, 3)) @ random.uniform(size=(3, 64)) > 0.8
    first, last = autoencoder.train(ink * 1.0, variational, hidden=32, size=4, num_epoch=8)
    assert last < 0.85 * first


def test_two_tasks_share_a_layer():
    import multi_task

    found = multi_task.train(blobs(1000), num_epoch=3)
    assert set(found) == {"digit", "parity"} and min(found.values()) > 0.9


def test_small_changes_of_images_deceive_a_classifier():
    import adversarial

    before, after = adversarial.train(blobs(1000), step=1.0, num_epoch=3)
    assert before > 0.9 and after < before - 0.3


def test_layers_on_devices_of_their_own():
    import model_parallel

    first, last = model_parallel.train(length=6, layers=2, hidden=8, rows=320, num_epoch=4)
    assert last < 0.7 * first


def test_a_residual_network_within_a_limit_of_memory():
    import memory_limit

    free, limited = memory_limit.compare(units=1, shape=(4, 3, 16, 16), share=0.8)
    assert limited <= 0.8 * free


def test_an_operator_written_in_python_trains_inside_a_module():
    import lenet

    images, labels, test_images, test_labels = blobs(400)
    large = [np.pad(x, ((0, 0), (0, 0), (10, 10), (10, 10))) for x in (images, test_images)]
    assert lenet.train(large[0], labels, large[1], test_labels, num_epoch=5, batch_size=40) > 0.9

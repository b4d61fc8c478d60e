"""The engine as it was, after tests that change it."""

import pytest

from rsnet import engine


@pytest.fixture(autouse=True)
def quiet():
    """Leaves the engine as it was, whatever a test does to it."""
    threads = engine.num_threads()
    yield
    engine.set_num_threads(threads)
    engine.set_wait_timeout(None)
    engine.set_hook(None)
    engine.set_bulk_size(0)
    try:
        engine.wait_for_all()
    except Exception:
        pass

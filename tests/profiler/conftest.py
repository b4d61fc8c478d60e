"""Sessions of the profiler for its tests."""

import json

import pytest

import rsnet as mx
from rsnet import profiler


@pytest.fixture
def record(tmp_path):
    """Starts a session; what it returns ends it and gives the events."""
    path = tmp_path / "trace.json"

    def start(**options):
        mx.nd.waitall()  # what earlier tests left would appear
        profiler.set_config(**{"filename": str(path), "continuous_dump": False} | options)
        profiler.set_state("run")
        return stop

    def stop():
        mx.nd.waitall()
        profiler.dump()
        events = json.loads(path.read_text())["traceEvents"]
        return sorted(events, key=lambda e: e.get("ts", 0))  # as viewers do

    yield start
    profiler.set_config(filename=str(path), continuous_dump=False, aggregate_stats=True)
    profiler.dump()
    profiler.dumps(reset=True)
    profiler.set_config()

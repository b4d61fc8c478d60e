"""The profiler: what ran where and for how long, as a trace for a browser and as a table.

While it runs, every operator is recorded by its name, on the thread on which it ran: those called
one by one, the nodes of bound graphs, gradients, operators written in Python, and functions pushed
to the engine. `dump` writes a trace that chrome://tracing and https://ui.perfetto.dev show; `dumps`
gives totals, least, greatest and average times as a text. While it does not run it costs nothing
that could be measured.

Operations run when they are ready, not when they are called: wait (``nd.waitall()``) before
`set_state('stop')` or `dump` for what is still to come. What has not ended when the file is written
is in the next dump of the same session.

Examples
--------
>>> import json, os, tempfile
>>> import rsnet as mx
>>> path = os.path.join(tempfile.mkdtemp(), "trace.json")
>>> mx.profiler.set_config(
...     filename=path, profile_api=False, profile_memory=False, aggregate_stats=True
... )
>>> mx.profiler.set_state("run")
>>> with mx.profiler.Task(mx.profiler.Domain("example"), "squares"):
...     y = mx.nd.ones((2, 3)) * 2
...     y = mx.nd.square(y)
...     mx.nd.waitall()
>>> mx.profiler.dump()
>>> with open(path) as file:
...     events = json.load(file)["traceEvents"]
>>> sorted(e["name"] for e in events if e["ph"] == "B")
['_full', '_mul_scalar', 'square']
>>> times = json.loads(mx.profiler.dumps(reset=True, format="json"))["Time"]
>>> times["operator"]["square"]["Count"], list(times["example"])
(1, ['squares'])
"""

from __future__ import annotations

from .marks import Counter, Domain, Event, Frame, Marker, Task
from .old_names import dump_profile, profiler_set_config, profiler_set_state
from .session import dump, dumps, pause, resume, scope, set_config, set_state, state

__all__ = [
    "Counter", "Domain", "Event", "Frame", "Marker", "Task",
    "dump", "dump_profile", "dumps", "pause", "profiler_set_config", "profiler_set_state", "resume",
    "scope", "set_config", "set_state", "state",
]  # fmt: skip

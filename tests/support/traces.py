"""What the traces of profiler sessions say."""


def spans(events, category="operator"):
    """(name, node, thread, begin, end) of the spans; every end must be that of the last begin of
    its thread.
    """
    found, open_spans = [], {}
    timed = [e for e in events if e["ph"] in "BE"]
    for e in sorted(timed, key=lambda e: e["ts"]):
        stack = open_spans.setdefault((e["pid"], e["tid"]), [])
        if e["ph"] == "B":
            stack.append(e)
            continue
        begin = stack.pop()
        assert begin["name"] == e["name"] and begin["ts"] <= e["ts"]
        if e["cat"] == category:
            node = begin.get("args", {}).get("node", "")
            found.append((e["name"], node, e["tid"], begin["ts"], e["ts"]))
    assert not any(open_spans.values())
    return sorted(found, key=lambda s: s[3])


def names(events, category="operator"):
    return [s[0] for s in spans(events, category)]


ONLY = {"profile_api": False, "profile_memory": False}

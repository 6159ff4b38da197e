"""A run as a trace in the format of Chrome and Perfetto ("Trace Event Format"), and as bars for the page."""

from __future__ import annotations

import json
import os
from typing import Any

from tilewright.tools.report.recording import Event, Recording

_LIMIT = 4000  # events of the page's own time line and trace; the longest are kept


def kept_events(recording: Recording) -> list[Event]:
    """The events in the order of their beginnings; of very many the longest."""
    longest = sorted(recording.events, key=lambda event: -event.seconds)[:_LIMIT]
    return sorted(longest, key=lambda event: event.begin)


def chrome_trace(recording: Recording) -> dict[str, Any]:
    """The trace as data for `json.dump`: complete events, in microseconds since the run began."""
    process = os.getpid()
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": process, "name": "process_name", "args": {"name": "tilewright"}},
    ]
    for event in kept_events(recording):
        name = event.facts.get("variant", event.name) if event.kind == "launch" else f"{event.kind} {event.name}"
        events.append({
            "ph": "X", "cat": event.kind, "name": name, "pid": process, "tid": event.thread,
            "ts": round((event.begin - recording.begin) * 1e6, 3), "dur": round(event.seconds * 1e6, 3),
            "args": {key: str(value) for key, value in event.facts.items()},
        })  # fmt: skip
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def trace_text(recording: Recording) -> str:
    """The trace as JSON."""
    return json.dumps(chrome_trace(recording), separators=(",", ":"))


def bars(recording: Recording) -> list[dict[str, Any]]:
    """The events as bars: lane, place and width in shares of the time from the first event to the end of the last."""
    first = min((event.begin for event in recording.events), default=0.0)
    whole = max([1e-9, *(event.end - first for event in recording.events)])
    return [
        {"kind": event.kind, "name": event.facts.get("variant", event.name), "left": (event.begin - first) / whole,
         "width": event.seconds / whole, "begin": event.begin - recording.begin, "seconds": event.seconds,
         "facts": {key: str(value) for key, value in event.facts.items() if key != "variant"}}
        for event in kept_events(recording)
    ]  # fmt: skip

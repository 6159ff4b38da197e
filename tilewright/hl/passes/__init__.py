"""Rewrites of a copy of the graph for one configuration; the trace itself never changes."""

"""What a user runs rather than imports: the command line and what it shows.

The highest room: it may use every other one, and nothing imports it. ``click`` and ``rich`` are
used here only, so ``import tilewright`` does not load them.
"""

"""The meaning of every operation: one file per family.

Each op class stands beside one `OpSpec` record (types, reference, facts, lowering,
samples) and the user functions that build it; nothing elsewhere states its meaning.
"""

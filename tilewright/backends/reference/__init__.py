"""The reference: tile IR evaluated with numpy, op by op, through the same records as everything else.

Slow and obvious on purpose: it is the oracle against which the other back ends are tested.
"""

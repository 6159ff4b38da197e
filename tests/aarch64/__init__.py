"""Runs parts of the suite as Linux on 64-bit Arm, under emulation."""

"""Laid-out tile IR: its types, its operations, its level and its facts."""

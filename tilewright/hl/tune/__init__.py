"""Configurations: which there are for a kernel, and which one is taken."""

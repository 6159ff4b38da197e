"""Kernels as objects: binding, compiling, calling."""

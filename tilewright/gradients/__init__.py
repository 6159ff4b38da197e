"""Gradients of kernels: reverse mode on tile IR."""

"""Planned kernels to LLVM IR: one file per family of steps."""

"""Emission of LLVM IR from laid-out tile IR; the files mirror those of `ops/`."""

"""Kernels beside a reference, for tests of kernels: `tilewright.testing.compare` and `assert_kernel`."""

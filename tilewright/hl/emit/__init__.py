"""From tile graphs to the text of a Python module: `tl` kernels and the host function that launches them."""

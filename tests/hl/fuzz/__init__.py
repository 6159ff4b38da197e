"""Random kernels against the tiled reference, each under several configurations."""

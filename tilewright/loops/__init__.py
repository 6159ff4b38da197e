"""Loop nests: what a kernel computes at each index, whatever loops and tiles it is written with."""

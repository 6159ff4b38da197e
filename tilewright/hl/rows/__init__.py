"""What each aten operation means in `tl`: rows emit text, recipes are written in PyTorch and traced like user code."""

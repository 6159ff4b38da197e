"""The tile graph: what one loop over tiles computes, without PyTorch objects (types aside)."""

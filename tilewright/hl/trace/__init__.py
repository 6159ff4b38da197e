"""From a Python function to tile graphs: PyTorch runs the body once on tiny tensors, and we write down what it does."""

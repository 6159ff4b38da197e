"""What runs in which loop nest, decided over tile IR before a line of LLVM IR is written."""

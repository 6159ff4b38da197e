"""The NVIDIA back end: laid-out tile IR, LLVM IR for NVPTX, PTX, cubin, and the driver that runs it."""

"""The CUDA driver: modules, memory, launches, tensor maps."""

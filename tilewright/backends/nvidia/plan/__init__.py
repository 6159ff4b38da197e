"""Layouts, pipelines, order and memory of a kernel, decided over laid-out tile IR."""

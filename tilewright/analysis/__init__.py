"""Facts about tile IR, read-only: one lattice interface, one solver."""

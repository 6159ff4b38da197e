"""Back ends: how tile IR becomes numbers (reference), nothing (null) or native code (cpu, nvidia)."""

"""From kernel[grid](...) to running programs."""

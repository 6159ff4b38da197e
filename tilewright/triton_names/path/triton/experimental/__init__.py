"""`triton.experimental`: what Triton calls so and Tilewright does not have."""

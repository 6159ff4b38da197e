"""`triton.tools`."""

"""xDSL glue: tile and pointer types, the base class of operations, text and level specs."""

"""Back ends by name, arrays of any library, and where they are."""

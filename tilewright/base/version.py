"""The version of the project, stated once: the package, the build and the cache keys read it here."""

__version__ = "0.1.0"

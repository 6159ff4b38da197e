"""What definitions of kernels do not need: modules of Python's library, and the loggers. Each loads at a first use."""

from typing import TYPE_CHECKING

from tilewright.base.lazy import lazy_module

if TYPE_CHECKING:
    import hashlib
    import hmac
    import json
    import logging
    from concurrent import futures

    from tilewright.base import logs
else:
    futures = lazy_module("concurrent.futures")
    hashlib = lazy_module("hashlib")
    hmac = lazy_module("hmac")
    json = lazy_module("json")
    logging = lazy_module("logging")
    logs = lazy_module("tilewright.base.logs")

__all__ = ["futures", "hashlib", "hmac", "json", "logging", "logs"]

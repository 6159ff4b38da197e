"""Makes the fixture `backend` known to the tests of this folder."""

from tests.language.kernel_runner import backend

__all__ = ["backend"]

"""Tilewright under the name `helion`: the public names of Helion 1.5.1, each where `helion_names.surface` says."""

__tilewright__ = True
__version__ = "1.5.1"

from tilewright.helion_names import modules as _modules

_modules.enter(__name__)

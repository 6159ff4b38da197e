"""Layouts: linear maps over F2 from hardware positions to tile coordinates, and everything computed from them.

Pure mathematics: no IR and no code generation. `linear.py` is the algebra, `distributed.py` and `shared.py` are the
named layouts, `access.py` and `conversion.py` turn pairs of layouts into instructions.
"""

"""The room that poses as `helion`, for programs that say `import helion`.

`surface.py` is the list of Helion's names with what each is here; `modules.py` makes the modules of the package from
it. The folder `path` is what the switch (`switch.py`) puts on `sys.path`. Nothing in Tilewright but `tools/` imports
this room, and it imports nothing of the real Helion.
"""

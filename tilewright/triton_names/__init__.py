"""The room that poses as `triton`, for programs that say `import triton`.

`path/triton/` is a package of that name which maps names to where Tilewright has them; nothing is implemented in it
that has a meaning elsewhere. It is found by whoever has the folder `path` on `sys.path`, which is what the switch does
(`switch.py`). Nothing in Tilewright imports it, and it imports nothing of the real Triton.
"""

"""Launches that Python does not see: the machine code of `backends/llvm/calls/`, loaded and taught.

::

    machine.py   the code loaded, what it needs of the interpreter and of torch, and the checks of both
    watching.py  whether a tracer of torch would see a launch
    builtin.py   one function with its table of known calls
    columns.py   what is remembered of a call that Python has bound, specialised and launched once
"""

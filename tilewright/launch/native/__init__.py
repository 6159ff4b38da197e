"""Launches that Python does not see: machine code that the interpreter calls like a built-in function.

::

    tables.py    what the code is told: words of tables, kinds of columns
    matching.py  LLVM IR: is this the call that an entry remembers?
    calling.py   LLVM IR: grid, packing, launch; `kernel[grid]`
    machine.py   the code loaded, what it needs of the interpreter and of torch, and the checks of both
    builtin.py   one function with its table of known calls
    columns.py   what is remembered of a call that Python has bound, specialised and launched once
"""

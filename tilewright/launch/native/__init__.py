"""Launches that Python does not see: the machine code of `backends/llvm/calls/`, loaded and taught.

::

    machine.py   the code loaded, what it needs of the interpreter and of torch, and the checks of both
    observers.py who looks on in PyTorch
    watching.py  what a tracer of torch tells machine code of itself
    operators.py functions that are called at once where nobody in PyTorch looks on
    builtin.py   one function with its table of known calls
    columns.py   what is remembered of a call that Python has bound, specialised and launched once
"""

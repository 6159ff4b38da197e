"""Machine code that the interpreter calls like a built-in function, and the tables that tell it what to do.

::

    tables.py    words of the tables, kinds of columns
    tensors.py   LLVM IR: tensors of torch
    matching.py  LLVM IR: is this the call that an entry remembers?
    launching.py LLVM IR: packing, launch
    observing.py LLVM IR: would a tracer see a launch? what does torch hear of one?
    calling.py   LLVM IR: grid, the whole of a launch; `kernel[grid]`
    operators.py LLVM IR: calls of operators of PyTorch where nobody looks on
    replaying.py LLVM IR: memory, launches and results of a function of which these are all

`launch/native/` loads it and fills the tables.
"""

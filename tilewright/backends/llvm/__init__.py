"""Shared LLVM layer of the native back ends: text emission, elementwise table, vector math, compile-and-load.

`module`/`function` write LLVM IR text; `elementwise` and `vecmath` give the meaning of scalar ops for any lane count;
`features` says what the machine has; `codegen` turns text into object bytes and object bytes into callable addresses.
Importing this package does not load LLVM: `llvmlite.binding` is imported at the first compile.
"""

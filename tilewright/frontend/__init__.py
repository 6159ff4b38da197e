"""Python functions to tile IR: source capture, hashing, scopes, and an abstract interpreter over the AST.

`entry.build_module` compiles a kernel; `hashing.content_hash` names it in the disk cache. Nothing is imported here:
decorating a kernel needs `source` alone.
"""

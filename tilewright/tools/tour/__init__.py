"""The tour: six kernels compiled, checked and timed while the user watches.

``cases`` says what is run, ``run`` compiles, checks and times it, ``third_party`` runs a program that says
``import triton``, ``show`` draws it.
"""

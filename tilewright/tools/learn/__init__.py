"""`tilewright learn`: exercises in the block language, from one tile to flash attention, with checks.

catalogue.py     the exercises in order: what each is called with, and what must come out
exercises/       their texts, solved
check.py         one attempt: run it with checks, compare, say what is wrong first
poison.py        a launch that shows what is right by chance
differences.py   what to say about results that differ
course.py        a learner's folder: the files, and what is done
command.py       the commands
"""

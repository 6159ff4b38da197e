"""Rewrites of tile IR: one rewrite, one file, one name; `pipeline.py` is the table of contents."""

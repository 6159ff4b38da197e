"""A back end that compiles everything and runs nothing: its code is the text of tile IR."""

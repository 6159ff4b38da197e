"""The lowest room: data types, targets, locations, errors, options and knobs.

Everything here depends on the standard library and numpy alone, so every other
room may import it and nothing here can start a compiler or a driver.
"""

"""Speed measured against torch in the same process; ``python -m benchmarks`` (or ``make bench``) runs it all.

``contests`` lists what races against what, ``startup`` times imports and compilations in fresh
processes, ``report`` draws the table and writes the JSON in ``results/``.
"""

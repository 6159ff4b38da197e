"""`tilewright report`: one self-contained page that shows the kernels of a run.

`recording.py` listens to a run, `builds.py` and the files beside it turn what was heard into data, one file for each
part of the page, and `page.py` writes the page with the templates of `templates/`.
"""

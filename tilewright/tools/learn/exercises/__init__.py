"""The exercises of `tilewright learn`, solved. What stands behind `# <exercise>` takes the place of what stands behind
`# <solution>` in the files that learners get (`course.py`)."""

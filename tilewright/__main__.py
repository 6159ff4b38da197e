"""`python -m tilewright`: the command `tilewright` of this Python."""

from tilewright.tools.cli import main

if __name__ == "__main__":
    main(prog_name="tilewright")

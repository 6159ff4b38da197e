"""From a kernel and what it is specialised on to loaded code."""

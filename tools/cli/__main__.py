"""`python -m rewindq.tools.cli`."""

from . import main

main()

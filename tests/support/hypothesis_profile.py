"""The project's Hypothesis profile: importing this module puts it in force.

Examples differ from run to run, failures are kept in the example database and printed with what reproduces them.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis.database import DirectoryBasedExampleDatabase

settings.register_profile(
    "rewindq",
    derandomize=False,
    database=DirectoryBasedExampleDatabase(".hypothesis/examples"),
    print_blob=True,
    deadline=None,
)
settings.load_profile("rewindq")

"""What all tests share."""

from __future__ import annotations

import os

from hypothesis import settings

# The same examples in every run, so that a failure belongs to the change at hand. To search for
# new ones: HYPOTHESIS_PROFILE=search. No deadline: other programs may hold the processor.
settings.register_profile("fixed", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

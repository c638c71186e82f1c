"""What all tests share."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from hypothesis import settings

import fastopt

# The same examples in every run, so that a failure belongs to the change at hand. To search for
# new ones: HYPOTHESIS_PROFILE=search. No deadline: other programs may hold the processor.
settings.register_profile("fixed", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

# An interpreter that a test starts in the checkout must not take the package from there when it
# is the installed one that is tested.
if Path(fastopt.__file__).resolve().parent.parent != Path(__file__).resolve().parent.parent:
    os.environ["PYTHONSAFEPATH"] = "1"

# A shell lets its background jobs ignore Ctrl-C, and their children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

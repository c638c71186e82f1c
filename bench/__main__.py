"""The command: ``python -m bench [NAME ...]``."""

import sys
from pathlib import Path

if not __package__:  # `python -P bench`: fastopt is the installed one, not the checkout beside us
    sys.path.append(str(Path(__file__).resolve().parents[1]))

from bench.command import main

if __name__ == "__main__":
    sys.exit(main())

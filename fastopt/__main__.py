"""``python -m fastopt``."""

import sys

from fastopt.demo.cli import main

if __name__ == "__main__":
    sys.exit(main())

import sys
from pathlib import Path

# Behind everything: the package under test stays the installed one.
sys.path.append(str(Path(__file__).resolve().parents[2]))

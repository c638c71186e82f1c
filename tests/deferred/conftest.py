"""What the tests of deferred rows share."""

from tests.optimizer_db import fresh_graph

__all__ = ["fresh_graph"]

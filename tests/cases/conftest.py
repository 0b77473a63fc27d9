"""A fresh namespace on each log, for tests with real processes."""

from tests.process.conftest import settings

__all__ = ["settings"]

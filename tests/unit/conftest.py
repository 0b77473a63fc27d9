"""Unit tests: no service, no process, no waiting."""

from __future__ import annotations

from tests.support import hypothesis_profile

__all__ = ["hypothesis_profile"]

"""Every contract test runs against each kind of store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.stores import KINDS, open_kind

from rewindq.engine.ports.store import Store


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened = open_kind(request.param, tmp_path)
    yield opened
    opened.close()


@pytest.fixture(params=["memory", "rocks"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store that branches leave from."""
    opened = open_kind(request.param, tmp_path)
    yield opened
    opened.close()

"""The cluster's clock is the brokers', never a producer's."""

from __future__ import annotations

import pytest
from tests.support.kafka import Space

from rewindq.engine.ports.log import LogUnavailable, NoSuchTopic

pytestmark = pytest.mark.kafka


def test_a_topic_with_its_producers_times_tells_no_time(space: Space) -> None:
    with pytest.raises(LogUnavailable, match=f"{space.events}.*LogAppendTime"):
        space.log.now_us(space.events)
    with pytest.raises(NoSuchTopic, match="nowhere"):
        space.log.now_us("nowhere")

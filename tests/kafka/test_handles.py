"""Readers and members that nobody closes."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.support.kafka import Space, event, poll_until

pytestmark = pytest.mark.kafka

# The client library's finaliser of a joined consumer blocks when the garbage collector runs it.
_FORGETFUL = """
import gc, sys
from rewindq.engine.log.kafka import open_kafka
url, jobs, group = sys.argv[1:]
class Ownership:
    def __init__(self): self.owned, self.member = set(), None
    def assigned(self, partitions): self.owned.update(partitions)
    def revoked(self, partitions): pass
    def lost(self, partitions): pass
def forget():
    ownership = Ownership()
    ownership.member = open_kafka(url).join(group, [jobs], ownership, name="forgotten")
    while ownership.owned != {0, 1}:
        ownership.member.poll(0.02)
forget()
gc.collect()
print("went on", flush=True)
"""


@pytest.mark.process
def test_a_forgotten_member_does_not_block_its_process_and_leaves_at_its_end(space: Space) -> None:
    command = [sys.executable, "-c", _FORGETFUL, space.url, space.jobs, space.group]
    result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (result.returncode, result.stdout) == (0, "went on\n"), result.stderr
    (state,) = space.log.groups(space.group)
    assert state.members == ()


def test_a_closed_log_closes_what_it_opened(space: Space) -> None:
    space.log.producer().append([event(space.jobs, "one")])
    member, told = space.join()
    poll_until(lambda: told.owned == {0, 1}, member)
    reader = space.log.reader({(space.jobs, 0): 0})
    space.log.close()
    with pytest.raises(Exception, match="is closed"):
        member.poll(0)
    with pytest.raises(RuntimeError, match="closed"):
        reader.poll()
    reader.close()
    member.close()

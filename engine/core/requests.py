"""The words of requests between partitions: what a resource's home is asked (`op`), what it answers (`outcome`)."""

from __future__ import annotations

LOAD, SAVE, LEASE, RENEW, RELEASE = "load", "save", "lease", "renew", "release"
#: Asks for nothing: it tells, by its epoch, that the asking partition has a new owner.
OWNED = "owned"
DONE, CONFLICT, FENCED, REFUSED, EXPIRED = "done", "conflict", "fenced", "refused", "expired"
#: About global keys, beside the words of effects: two answers, and what a claim comes to under which nothing was begun.
CLAIMED, BUSY, FREE = "claimed", "busy", "free"

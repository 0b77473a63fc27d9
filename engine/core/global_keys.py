"""Keys of effects that are shared between partitions: `/{operation}/{global key}`, at home where the key itself is.

An effect's own key begins with its job's partition key, which is never empty; so one that begins with a slash is
global. Its home keeps the record that decides under `/{key}`, beside what its own jobs know under `{key}`. Pure.
"""

from __future__ import annotations

from .decide import effect_key
from .partitioner import partition_for


def global_effect_key(operation: str, key: str) -> str:
    """The full key of an effect under a global key. Raises ValueError when `key` is blank."""
    return effect_key("", operation, key)


def is_global(key: str) -> bool:
    """Whether an effect's full key is shared between partitions."""
    return key.startswith("/") and key.count("/") > 1


def home_of(key: str, partitions: int) -> int:
    """The partition that decides about a global effect's full key: that of what was given as `global_key=`."""
    given = key.split("/")[2].replace("%2F", "/").replace("%25", "%")
    return partition_for(given.encode(), partitions)


def record_key(key: str) -> str:
    """Where the home keeps its record."""
    return f"/{key}"


def recorded_key(stored: str) -> str | None:
    """The full key of a home's record; None where the stored key is another one."""
    return stored[1:] if stored.startswith("//") else None


def base_of(key: str) -> str:
    """The key without what stands behind it once the effect was compensated."""
    return "/".join(key.split("/")[:3])

"""Reading an app's cache sources."""

from __future__ import annotations

import inspect

from ..core.sizes import name_refusal
from ..effects.errors import BadStep
from .app import App
from .context import CacheAnswer


async def read_cache(app: App, source: str, key: str, step: str) -> CacheAnswer:
    """Asks a registered source: `get(key) -> (value, version) | (value, version, age in seconds) | None`.

    Raises BadStep when the source is unknown or answers in another form.
    """
    get = app.cache_sources.get(source)
    if get is None:
        known = ", ".join(sorted(app.cache_sources)) or "none"
        raise BadStep(f"cache source {source!r} is not registered (known: {known}); see app.cache_source", step=step)
    found = get(key)
    if inspect.isawaitable(found):
        found = await found
    if found is None:
        return CacheAnswer(False)
    if not isinstance(found, tuple) or len(found) not in (2, 3):
        raise BadStep(f"cache source {source!r} must return (value, version) or None, got {found!r}", step=step)
    age = int(found[2] * 1000) if len(found) == 3 else None
    version = str(found[1])
    refusal = name_refusal(f"cache source {source!r}: the version", version)
    if refusal is not None:
        raise BadStep(refusal, step=step)
    return CacheAnswer(True, found[0], version, age)

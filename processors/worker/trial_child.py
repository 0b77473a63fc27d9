"""Reads submissions as a worker takes them in, and does nothing else; it may die of them. Run as a program.

Argument: the app's `module:attribute`. Standard input: lines of JSON, `[job type, payload in base64]`.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import sys

from rewindq.engine.runtime.app import App, load_app

from .trial import READY

#: A payload whose reading takes longer holds a worker up for good, in seconds.
READ_MAX = 20
LOAD_MAX = 120


def read_as_intake_does(app: App, name: str, payload: bytes) -> None:
    """Runs the app's own code that a submission meets before it is accepted; what it refuses is refused later."""
    job_type = app.types.get(name)
    if job_type is None:
        return
    with contextlib.suppress(Exception):
        model = job_type.model.model_validate_json(payload)
        job_type.resource_of(model)
        job_type.key_of(model)
        job_type.unique_of(model)


def main() -> None:
    """Tells `READY` when the app is loaded, then a line for each submission that it has survived."""
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the app prints
    signal.alarm(LOAD_MAX)  # unhandled: it ends the process wherever it is
    app = load_app(sys.argv[1]).app
    print(READY, file=told, flush=True)
    for line in sys.stdin:
        signal.alarm(READ_MAX)
        name, payload = json.loads(line)
        read_as_intake_does(app, name, base64.b64decode(payload))
        print("read", file=told, flush=True)


if __name__ == "__main__":
    main()

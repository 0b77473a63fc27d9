"""The command line as a whole: wrong usage, interrupts and a failing stdout end it the same way in every command."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from ..interrupts import noted_interrupts
from .errors import WRONG_USAGE
from .output import INTERRUPTED, error_document, tell, writing

#: Click's own base of all wrong usage. Newer versions of Typer bring a Click of their own, so its known subclass leads.
_WrongUsage: type[Exception] = typer.BadParameter.__mro__[1]
_AS_JSON = "rewindq.json"


class Group(TyperGroup):
    """A group of commands. Without one it shows its help, and with --json it fails: a help text is no document."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuses to go on without a command where JSON is asked for."""
        if not args and ctx.parent is not None and ctx.find_root().meta.get(_AS_JSON):
            ctx.fail("Missing command.")
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed


class Program(Group):
    """The root of all commands."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parses what stands before the command's name, --help included."""
        as_json = _asks_for_json(args)
        with _ending(as_json):
            ctx = super().make_context(info_name, args, parent, **extra)
        ctx.meta[_AS_JSON] = as_json
        return ctx

    def invoke(self, ctx: Any) -> Any:
        """Parses the rest and runs the command."""
        with _ending(ctx.meta[_AS_JSON]):
            return super().invoke(ctx)


def _asks_for_json(words: Sequence[str]) -> bool:
    """Before anything is parsed, since it counts for what cannot be parsed, too."""
    return "--json" in words[: words.index("--") if "--" in words else None]


@contextlib.contextmanager
def _ending(as_json: bool) -> Iterator[None]:
    with noted_interrupts() as interrupted:
        try:
            with writing():
                yield
        except _WrongUsage as error:
            if as_json:
                message = " ".join(str(getattr(error, "format_message", error.__str__)()).split())
                with writing():
                    typer.echo(error_document(type(error).__name__, message, WRONG_USAGE), nl=False)
            raise
        except typer.Exit:
            raise
        except (KeyboardInterrupt, Exception) as error:
            if not isinstance(error, KeyboardInterrupt) and not interrupted():
                raise
            if as_json:
                with writing():
                    typer.echo(error_document("Interrupted", "interrupted", INTERRUPTED), nl=False)
            tell("interrupted")
            raise typer.Exit(INTERRUPTED) from error

"""A shop that books outside, and can undo it: functions that another process finds by name."""

from __future__ import annotations

from pydantic import BaseModel

from rewindq import App, Context, Retry

#: What was done outside, in order.
LEDGER: list[str] = []
#: Names of undoings that fail now, with what they raise.
BROKEN: dict[str, Exception] = {}


class Trip(BaseModel):
    """A trip to book."""

    to: str = "Rome"
    nights: int = 2
    fails: bool = True


class Room(BaseModel):
    """What a hotel answers."""

    number: int


def book_flight(to: str, *, seat: str, idempotency_key: str) -> str:
    LEDGER.append(f"flight {to} {seat} {idempotency_key}")
    return f"flight-{to}"


def undo_flight(flight: str, to: str, *, seat: str, idempotency_key: str) -> None:
    if "flight" in BROKEN:
        raise BROKEN["flight"]
    LEDGER.append(f"undo {flight} {to} {seat} {idempotency_key}")


async def book_room(trip: Trip) -> Room:
    LEDGER.append(f"room {trip.nights}")
    return Room(number=7)


async def undo_room(room: Room, trip: Trip) -> None:
    if "room" in BROKEN:
        raise BROKEN["room"]
    LEDGER.append(f"undo room {room.number} {trip.nights}")


async def undo_by_name(room: Room, trip: Trip) -> None:
    await undo_room(room, trip)


def made(**retry: float) -> App:
    """The app, as every process makes it for itself."""
    app = App("trips")
    app.compensation("cancel-room")(undo_by_name)

    @app.job(retry=Retry(**{"max_attempts": 2, "base": 0.01, **retry}), key=lambda job: "trip")  # type: ignore[arg-type]
    async def trip(ctx: Context, job: Trip) -> str:
        await ctx.effect(
            "flight", book_flight, job.to, seat="2A", key=f"f-{ctx.job_id}", compensate=undo_flight, idempotent=True
        )
        await ctx.effect("room", book_room, job, key=f"r-{ctx.job_id}", compensate="cancel-room")
        await ctx.effect("mail", LEDGER.append, "mail", key=f"m-{ctx.job_id}")
        if job.fails and not BROKEN.get("mended"):
            raise RuntimeError("no car to be had")
        return "booked"

    return app

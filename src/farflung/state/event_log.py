"""A durable append-only log in any database that SQLAlchemy speaks to; SQLite by default.

What `write` returns from is on disk: one transaction, SQLite in WAL mode with `synchronous=FULL`. One process owns a
log; SQLite's exclusive lock says so at once, other databases at the first sequence number that two writers both use. An
entry of kind `snapshot` stands for everything before it, so replay begins there; the older entries stay until `forget`,
for whoever still has to copy them elsewhere. This module does not know what entries mean.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError, SQLAlchemyError

from farflung.errors import OurFault, UserError

SNAPSHOT = "snapshot"
LOCK_WAIT_S = 5.0
"""A predecessor that was just killed may hold SQLite's lock for a moment."""
_ROWS_PER_FETCH = 1000

_METADATA = sa.MetaData()
_EVENTS = sa.Table(
    "farflung_events",
    _METADATA,
    sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("kind", sa.String(64), nullable=False),
    sa.Column("body", sa.LargeBinary(2**32 - 1), nullable=False),  # MySQL picks its column type by this
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    sequence: int
    """Consecutive; the first is 0, or a snapshot's."""
    at_ms: int
    kind: str
    body: bytes


class EventLog(Protocol):
    """Blocking; not for use by several threads at once."""

    def write(self, entries: Sequence[Entry]) -> None:
        """Append all or none, durably.

        Raises:
            OurFault: the disk is full, or the database failed. The log must not be used any further.
        """
        ...

    def replay(self) -> Iterator[Entry]:
        """Every entry since the last snapshot, that included.

        Raises:
            OurFault: an entry is missing.
        """
        ...

    def read(self, first: int, limit: int) -> list[Entry]:
        """At most `limit` entries from `first` on, also such as a snapshot stands for; those that are still there."""
        ...

    def forget(self, before: int) -> None:
        """Delete the entries before this sequence, as far as a snapshot stands for them."""
        ...

    def close(self) -> None: ...


class SqlEventLog:
    """Implements `EventLog` by SQLAlchemy URL.

    Args:
        url: such as `sqlite:///runs/demo/coordinator.db` (made if absent, with its folder) or `postgresql+psycopg://...`.

    Raises:
        UserError: the URL is wrong, the file is no log, or another process uses it.
    """

    def __init__(self, url: str) -> None:
        self._engine = _open_engine(url)
        self._name = self._engine.url.render_as_string(hide_password=True)
        try:
            self._connection = self._engine.connect()
            _METADATA.create_all(self._connection)
            self._connection.execute(_EVENTS.delete().where(sa.false()))  # takes SQLite's exclusive lock now
            self._connection.execute(sa.select(_EVENTS).limit(1)).all()
            self._connection.commit()
        except SQLAlchemyError as error:
            self._engine.dispose()
            raise UserError(f"event log {self._name} cannot be used: {_open_failure(error)}") from error

    def write(self, entries: Sequence[Entry]) -> None:
        rows = [
            {"sequence": entry.sequence, "at_ms": entry.at_ms, "kind": entry.kind, "body": entry.body}
            for entry in entries
        ]
        try:
            with self._connection.begin():
                self._connection.execute(_EVENTS.insert(), rows)
        except IntegrityError as error:
            raise OurFault(f"event log {self._name}: another coordinator writes to it as well") from error
        except SQLAlchemyError as error:
            raise OurFault(f"event log {self._name} cannot be written: {_cause(error)}") from error

    def replay(self) -> Iterator[Entry]:
        expected: int | None = None
        try:
            with self._connection.begin():
                wanted = sa.select(_EVENTS).where(_EVENTS.c.sequence >= self._newest_snapshot())
                for row in self._connection.execute(wanted.order_by(_EVENTS.c.sequence)).yield_per(_ROWS_PER_FETCH):
                    check_next(row.sequence, row.kind, expected)
                    expected = row.sequence + 1
                    yield _entry(row)
        except SQLAlchemyError as error:
            raise OurFault(f"event log {self._name} cannot be read: {_cause(error)}") from error

    def read(self, first: int, limit: int) -> list[Entry]:
        wanted = sa.select(_EVENTS).where(_EVENTS.c.sequence >= first).order_by(_EVENTS.c.sequence).limit(limit)
        try:
            with self._connection.begin():
                return [_entry(row) for row in self._connection.execute(wanted)]
        except SQLAlchemyError as error:
            raise OurFault(f"event log {self._name} cannot be read: {_cause(error)}") from error

    def forget(self, before: int) -> None:
        try:
            with self._connection.begin():
                gone = _EVENTS.c.sequence < min(before, self._newest_snapshot())
                self._connection.execute(_EVENTS.delete().where(gone))
        except SQLAlchemyError as error:
            raise OurFault(f"event log {self._name} cannot be written: {_cause(error)}") from error

    def close(self) -> None:
        self._connection.close()
        self._engine.dispose()

    def _newest_snapshot(self) -> int:
        """Its sequence; 0 while there is none."""
        newest = sa.select(sa.func.max(_EVENTS.c.sequence)).where(_EVENTS.c.kind == SNAPSHOT)
        return self._connection.execute(newest).scalar() or 0


def _entry(row: Any) -> Entry:
    return Entry(sequence=row.sequence, at_ms=row.at_ms, kind=row.kind, body=row.body)


def check_next(sequence: int, kind: str, expected: int | None) -> None:
    """Raises `OurFault` unless the entry may follow; `expected` is None for the first."""
    starts_well = sequence == 0 or kind == SNAPSHOT
    if sequence != expected and not (expected is None and starts_well):
        raise OurFault(f"event log: entry {0 if expected is None else expected} is missing, {sequence} follows")


def _open_engine(url: str) -> sa.Engine:
    shown = re.sub(r":[^:@/]*@", ":***@", url)
    try:
        parsed = sa.make_url(url)
        if parsed.get_backend_name() != "sqlite":
            return sa.create_engine(parsed)
        if parsed.database and parsed.database != ":memory:":
            Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
        engine = sa.create_engine(
            parsed,
            connect_args={"timeout": LOCK_WAIT_S, "check_same_thread": False},
            poolclass=sa.StaticPool,
        )
    except (ArgumentError, NoSuchModuleError) as error:
        raise UserError(f"{shown!r} is not a database URL: write for example sqlite:///folder/log.db") from error
    except ModuleNotFoundError as error:
        raise UserError(f"{shown!r} needs the Python package {error.name!r}: install it, or use SQLite") from error
    except OSError as error:
        raise UserError(f"event log {shown!r}: its folder cannot be made: {error.strerror}") from error
    sa.event.listen(engine, "connect", _make_durable)
    return engine


def _make_durable(connection: Any, _record: Any) -> None:
    """Exclusive lock before WAL, so that no second process can open the log, and no shared memory is needed."""
    cursor = connection.cursor()
    for pragma in ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL"):
        cursor.execute(f"PRAGMA {pragma}").fetchall()
    cursor.close()


def _open_failure(error: SQLAlchemyError) -> str:
    cause = _cause(error)
    if "locked" in cause:
        return "another process has it open; stop that coordinator, or use another run folder"
    return cause


def _cause(error: SQLAlchemyError) -> str:
    """The database's own words."""
    return str(error.orig) if isinstance(error, DBAPIError) else str(error)

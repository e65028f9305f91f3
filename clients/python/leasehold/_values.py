"""What the server says about jobs, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional


@dataclass(frozen=True)
class Held:
    """Who is working on a job."""

    id: str
    """The subject of their token."""
    name: str
    """The name of the worker."""
    fence: int
    expires_in: float
    """How long they have it, in seconds, unless they refresh it."""

    @staticmethod
    def of(answer: Any) -> Optional["Held"]:
        """Reads it from an answer, if it is there and makes sense."""
        try:
            holder = answer["holder"]
            return Held(holder["id"], holder["name"], answer["fence"], answer["expires_in_ms"] / 1000)
        except (KeyError, TypeError):
            return None


@dataclass(frozen=True)
class Job:
    """A job, as shown to every caller who may see it."""

    id: str
    """`collection/id`."""
    status: str
    """QUEUED, RUNNING (a worker has it), READY or FAILED."""
    payload: Any
    attempts: int
    max_attempts: Optional[int]
    result: Any
    """What it came to, when it is READY."""
    error: Optional[str]
    """Why it was given up, when it is FAILED."""
    held: Optional[Held]
    """The worker that is running it, if one is."""

    @staticmethod
    def of(answer: Any) -> "Job":
        return Job(
            id=f"{answer['collection']}/{answer['id']}",
            status=answer["status"],
            payload=answer["payload"],
            attempts=answer["attempts"],
            max_attempts=answer.get("max_attempts"),
            result=answer.get("result"),
            error=answer.get("error"),
            held=Held.of(answer.get("held")),
        )


@dataclass(frozen=True)
class NotAcquired:
    """A job that is not ours to do. That is no error."""

    reason: str
    """`already_finished` or `locked`."""
    status: str
    result: Any = None
    error: Optional[str] = None
    held: Optional[Held] = None
    acquired: bool = False

    @staticmethod
    def of(answer: Any) -> "NotAcquired":
        return NotAcquired(
            reason=answer["reason"],
            status=answer["status"],
            result=answer.get("result"),
            error=answer.get("error"),
            held=Held.of(answer.get("held")),
        )


@dataclass(frozen=True)
class Run:
    """What `Jobs.run` came to."""

    outcome: str
    """`done` and `failed`: we did the work. `already_finished` and `locked`: we did not."""
    result: Any = None
    error: Optional[str] = None
    again: bool = False
    """Whether the job will be tried again, when the attempt failed."""
    held: Optional[Held] = None
    """Who is working on it, when it is locked."""

    @property
    def finished(self) -> bool:
        """Whether nothing is left to be done: a queue may forget the task."""
        return self.outcome in ("done", "already_finished") or (self.outcome == "failed" and not self.again)

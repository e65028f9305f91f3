"""What a caller may have to decide about. Not getting a job is none of these: see `NotAcquired`."""

from __future__ import annotations

from typing import Any, Optional

from ._values import Held


class LeaseholdError(Exception):
    """The server did not do it, or is not known to have done it."""


class Invalid(LeaseholdError):
    """What was to be sent breaks a rule; its words say which, and what to do."""


class Unauthenticated(LeaseholdError):
    """The server does not accept the token."""


class NotAllowed(LeaseholdError):
    """The token does not permit it."""


class NoSuchJob(LeaseholdError):
    """There is no such job for this caller."""


class JobDiffers(LeaseholdError):
    """There is a job with this id and another payload: the same id always means the same work."""


class JobRunning(LeaseholdError):
    """Another worker is running the job."""

    def __init__(self, message: str, held: Optional[Held] = None) -> None:
        super().__init__(message)
        self.held = held


class LeaseLost(LeaseholdError):
    """The attempt is over: whatever is said about it now is refused. Stop working."""

    def __init__(self, message: str, because: str, held: Optional[Held] = None) -> None:
        super().__init__(message)
        self.because = because
        """Why: `deadline` if nothing was heard from the server in time, else the server's word, such as `expired`."""
        self.held = held
        """Who works on the job instead, if that is known."""


class TooMany(LeaseholdError):
    """The caller asks too often, or has as many jobs as one may."""


class Unavailable(LeaseholdError):
    """There was no answer, or none that says anything. It may or may not have been done."""


class NotRetryable(Exception):
    """For the work itself to raise: it failed, and trying again would not help."""


def from_problem(status: int, problem: Any) -> LeaseholdError:
    """The error that the server's problem (RFC 9457) stands for."""
    if not isinstance(problem, dict) or not isinstance(problem.get("code"), str):
        problem = {"code": "", "title": f"status {status}, without a reason; is this a Leasehold server?"}
    code = problem["code"]
    words = ": ".join(str(problem[name]) for name in ("title", "detail") if problem.get(name))
    if code == "lease_over" or code == "not_holder":
        because = str(problem.get("because", "unknown"))
        return LeaseLost(f"the attempt is over ({because})", because, Held.of(problem))
    if code == "job_running":
        return JobRunning(words, Held.of(problem))
    kinds = {
        "job_not_found": NoSuchJob,
        "job_differs": JobDiffers,
        "not_allowed": NotAllowed,
        "unauthenticated": Unauthenticated,
    }
    if code in kinds:
        return kinds[code](words)
    if status == 401:
        return Unauthenticated(words)
    if status == 429:
        return TooMany(words)
    if status >= 500 or status < 400 or status == 408 or not code:
        return Unavailable(words)
    return Invalid(words)

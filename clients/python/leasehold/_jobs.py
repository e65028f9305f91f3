"""The jobs of a server."""

from __future__ import annotations

import logging
import os
import socket
import threading
import uuid
from typing import Any, Callable, Optional, Union

from ._attempt import Attempt
from ._errors import Invalid, LeaseholdError, NoSuchJob, NotRetryable, Unavailable
from ._http import Server, Token, understanding
from ._values import Job, NotAcquired, Run

log = logging.getLogger("leasehold")

WITHDRAWN_WITHIN = 1.0
"""How long a program that gives up an acquire waits for the server to hear of it: it may be about to end."""


class Jobs:
    """The jobs of a server. A job's id is `collection/id`, such as `analyses/42`.

    `token` is the token itself, or a function that gives the one to use now, for tokens that expire. Calls whose outcome is
    unknown are repeated under the same lease id; a server that asks to be left alone (429, 503) is.
    """

    def __init__(
        self,
        url: str,
        token: Token = None,
        *,
        worker: Optional[str] = None,
        timeout: float = 10.0,
        ca_file: Optional[str] = None,
    ) -> None:
        self._server = Server(url, token, timeout, ca_file)
        self._worker = worker or f"{socket.gethostname()[:40]}-{os.getpid()}"

    def __repr__(self) -> str:
        return f"Jobs(worker={self._worker!r})"

    def create(self, id: str, payload: Any = None, *, max_attempts: Optional[int] = None) -> bool:
        """Makes a job, unless it is there with the same payload. Answers whether it is new."""
        body = {"payload": payload}
        if max_attempts is not None:
            body["max_attempts"] = max_attempts
        _, status, answer = self._server.call("PUT", id, body=body)
        with understanding():
            Job.of(answer)
        return status == 201

    def look(self, id: str) -> Optional[Job]:
        """What is known about a job; `None` if there is none."""
        try:
            answer = self._server.call("GET", id)[2]
        except NoSuchJob:
            return None
        with understanding():
            return Job.of(answer)

    def acquire(
        self,
        id: str,
        *,
        worker: Optional[str] = None,
        ttl: int = 300,
        on_lost: Optional[Callable[[Attempt], None]] = None,
        refreshes: bool = True,
    ) -> Union[Attempt, NotAcquired]:
        """Begins with a job, if it is neither finished nor held by another worker. Not getting it is a value: look at
        `acquired`. `ttl` is how long the attempt lasts, in whole seconds, if this program dies. `on_lost` is called, in a
        thread of its own, when the attempt is lost. With `refreshes=False` it lasts until `refresh()` is called."""
        body = {"lease_id": str(uuid.uuid4()), "worker": worker or self._worker, "ttl_seconds": ttl}
        try:
            sent, _, answer = self._server.call("POST", id, "/acquire", body)
        except BaseException as error:
            # Also when this program is being interrupted: an attempt may have begun, and no worker would work on it.
            if isinstance(error, Unavailable) or not isinstance(error, LeaseholdError):
                self._withdraw(id, body["lease_id"])
            raise
        with understanding():
            if not answer["acquired"]:
                return NotAcquired.of(answer)
            return Attempt(self._server, id, answer, sent, on_lost, refreshes)

    def _withdraw(self, id: str, lease_id: Any) -> None:
        """Cancels an acquire whose answer is not known, so that the attempt that it may have begun does not count."""

        def send() -> None:
            try:
                self._server.call("POST", id, "/release", {"lease_id": lease_id}, tries=3)
            except Exception as error:
                log.warning("an acquire of %s could not be withdrawn, its attempt will run out: %s", id, error)

        sending = threading.Thread(target=send, name=f"leasehold {id}", daemon=True)
        sending.start()
        sending.join(WITHDRAWN_WITHIN)

    def run(self, id: str, work: Callable[[Attempt], Any], *, worker: Optional[str] = None, ttl: int = 300) -> Run:
        """Does `work` if the job is ours to do, and finishes it with what that returns. An exception fails the attempt,
        which is tried again as long as there are attempts left, unless it is `NotRetryable`. A result that cannot be kept (no
        JSON, or more than 64 KiB of it) fails the job for good: it would be the same again. Work that looks at
        `attempt.lost` or calls `attempt.check()` stops when the attempt is lost; what it comes to after that is not kept, and
        `LeaseLost` is raised."""
        attempt = self.acquire(id, worker=worker, ttl=ttl)
        if isinstance(attempt, NotAcquired):
            return Run(attempt.reason, attempt.result, attempt.error, held=attempt.held)
        with attempt:
            try:
                result = work(attempt)
            except Exception as error:
                if attempt.lost.is_set():
                    raise attempt._loss() from error
                words = str(error) or type(error).__name__
                again = attempt.fail(words, retryable=not isinstance(error, NotRetryable))
                return Run("failed", error=words, again=again)
            attempt.check()
            try:
                attempt.complete(result)
            except Invalid as error:
                words = f"the result cannot be kept: {error}"
                return Run("failed", error=words, again=attempt.fail(words, retryable=False))
            return Run("done", result)

    def reset(self, id: str) -> Job:
        """Has a job done again, whatever its status. Not while a worker is running it (`JobRunning`)."""
        answer = self._server.call("POST", id, "/reset")[2]
        with understanding():
            return Job.of(answer)

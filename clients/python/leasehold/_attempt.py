"""An attempt at a job: refreshed in the background, and lost in the open."""

from __future__ import annotations

import logging
import random
import threading
from types import TracebackType
from typing import Any, Callable, Optional, Type

from ._errors import LeaseholdError, LeaseLost, NoSuchJob
from ._http import TRIES, Server, now, understanding
from ._values import Held

log = logging.getLogger("leasehold")

LONGEST_SLEEP = 1.0
"""The longest sleep between two looks at the clock: a timer stands still while the machine sleeps, a deadline does not."""

LONGEST_ERROR = 10_000
"""How many characters of an error are kept: whatever they are, they fit into the 64 KiB that a server takes."""


class Attempt:
    """A job that is ours to do, until it is finished, given back, or lost.

    It is refreshed in the background. `lost` is set when it is over, *before* another worker can begin; ask `check()` before
    every step that others can see. As a context manager, it gives the job back at the end unless it was finished.
    """

    acquired = True

    def __init__(
        self,
        server: Server,
        job: str,
        answer: Any,
        sent: float,
        on_lost: Optional[Callable[["Attempt"], None]],
        refreshes: bool = True,
    ) -> None:
        self.id = job
        self.payload = answer["payload"]
        self.fence: int = answer["fence"]
        """Pass it on to whatever the work changes, which refuses an older one."""
        self.attempt: int = answer["attempt"]
        """The number of this attempt; 1 is the first."""
        self.recovered: bool = answer["recovered"]
        """Whether the previous worker vanished: it may have done part of the job."""
        self.lost = threading.Event()
        """Set when the attempt is over, for whatever reason but that it was finished or given back."""
        self.because: Optional[str] = None
        """Why it was lost."""
        self._lease_id: str = answer["lease_id"]
        self._server, self._on_lost = server, on_lost
        self._held: Optional[Held] = None
        self._ended, self._sent, self._stop_at = False, sent, float("inf")
        self._every = self._refresh_at = 0.0
        self._changed = threading.Condition()
        self._take(answer, sent)
        tasks = (self._refresh_until_over, self._watch_until_over)
        for task in tasks if refreshes else tasks[1:]:
            threading.Thread(target=task, name=f"leasehold {job}", daemon=True).start()

    def __repr__(self) -> str:
        return f"Attempt({self.id!r}, attempt={self.attempt}, fence={self.fence})"

    # --- what may be asked ---

    def time_left(self) -> float:
        """How many seconds the work may go on unless a refresh succeeds before; 0 when it is over."""
        with self._changed:
            return 0.0 if self._is_over() else max(0.0, self._stop_at - now())

    def is_held(self) -> bool:
        """Whether the job may still be worked on at this moment."""
        return self.time_left() > 0

    def check(self) -> int:
        """The fence, if the job may still be worked on at this moment; raises `LeaseLost` otherwise."""
        if not self.is_held():
            self._lose("deadline")
            raise self._loss()
        return self.fence

    def refresh(self, ttl: Optional[int] = None) -> None:
        """Refreshes it now, which it also does by itself; from now on for `ttl` seconds at a time, if given. An attempt that
        is over stays so: `LeaseLost`."""
        body = self._claim() if ttl is None else {**self._claim(), "ttl_seconds": ttl}
        try:
            # A lost attempt is not refreshed: it would keep other workers out for nothing.
            sent, _, answer = self._server.call("POST", self.id, "/refresh", body, before=self.check)
        except (LeaseLost, NoSuchJob) as error:
            self._lose(getattr(error, "because", "unknown"), getattr(error, "held", None))
            raise
        self._take(answer, sent)
        self.check()  # the answer may have come too late

    # --- how it ends ---

    def complete(self, result: Any = None) -> None:
        """The job is done. All later callers get this result."""
        self._say("complete", {"result": result})

    def fail(self, error: str, retryable: bool = True) -> bool:
        """The attempt failed. Answers whether the job will be tried again. Of a very long error the beginning is kept."""
        words = str(error)[:LONGEST_ERROR].replace("\0", "").encode("utf-8", "replace").decode()
        answer = self._say("fail", {"error": words, "retryable": retryable})
        with understanding():
            return bool(answer["again"])

    def release(self) -> None:
        """Gives the job back unfinished. That this fails is only a warning: the lease runs out."""
        if self._is_over():
            return
        try:
            self._say("release", {}, tries=3)
        except (LeaseLost, NoSuchJob):
            pass  # there is nothing to give back any more
        except LeaseholdError as error:
            self._end()
            log.warning("%s could not be given back, its lease will run out: %s", self.id, error)

    def __enter__(self) -> "Attempt":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.release()

    def _say(self, what: str, more: Any, tries: int = TRIES) -> Any:
        """Says how the attempt ended. It is refreshed until that is known, so that the last word has time to get through."""
        try:
            _, _, answer = self._server.call("POST", self.id, f"/{what}", {**self._claim(), **more}, tries)
        except (LeaseLost, NoSuchJob) as error:
            self._lose(getattr(error, "because", "unknown"), getattr(error, "held", None))
            raise
        self._end()
        return answer

    # --- in the background ---

    def _refresh_until_over(self) -> None:
        failures = 0
        while True:
            with self._changed:
                while not self._is_over() and now() < self._refresh_at:
                    self._changed.wait(min(LONGEST_SLEEP, max(0.001, self._refresh_at - now())))
                if self._is_over():
                    return
                timeout = min(self._server.timeout, max(0.001, self._stop_at - now()))
            try:
                sent, _, answer = self._server.call_once("POST", self.id, "/refresh", self._claim(), timeout)
                failures = 0
                self._take(answer, sent)
            except (LeaseLost, NoSuchJob) as error:
                self._lose(getattr(error, "because", "unknown"), getattr(error, "held", None))
                return
            except Exception as error:  # whatever it is, the deadline is the same
                failures += 1
                if not self._is_over():
                    log.warning("a refresh of %s failed and will be repeated: %s", self.id, error)
                pause = min(self._every, 10.0, self._every / 10 * 2 ** min(failures - 1, 10))
                pause = max(pause * (0.5 + random.random() / 2), getattr(error, "pause", None) or 0.02)
                with self._changed:
                    self._refresh_at = now() + pause

    def _watch_until_over(self) -> None:
        while True:
            with self._changed:
                if self._is_over():
                    return
                left = self._stop_at - now()
                if left > 0:
                    self._changed.wait(min(LONGEST_SLEEP, left))
                    continue
            self._lose("deadline")
            return

    def _claim(self) -> Any:
        return {"lease_id": self._lease_id, "fence": self.fence}

    def _take(self, answer: Any, sent: float) -> None:
        """Takes in what an answer says about time: it counts from when the request was *sent*."""
        with self._changed:
            if sent < self._sent or now() >= self._stop_at:
                return  # an answer to an earlier request, or one that came too late: what was lost stays lost
            with understanding():
                every, stop = _seconds(answer["refresh_after_ms"]), _seconds(answer["stop_after_ms"])
            self._sent, self._every = sent, every
            self._refresh_at, self._stop_at = sent + every, sent + stop
            self._changed.notify_all()

    def _is_over(self) -> bool:
        return self._ended or self.lost.is_set()

    def _end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _lose(self, because: str, held: Optional[Held] = None) -> None:
        with self._changed:
            if self._is_over():
                return
            self.because, self._held = because, held
            self.lost.set()
            self._changed.notify_all()
        log.warning("%s was lost: %s", self.id, because)
        if self._on_lost is not None:
            # The caller that notices the loss, such as a `check()` in the middle of the work, does not wait for it.
            threading.Thread(target=self._on_lost, args=(self,), name=f"leasehold {self.id}", daemon=True).start()

    def _loss(self) -> LeaseLost:
        because = self.because or "released"
        return LeaseLost(f"the attempt at {self.id} is over ({because})", because, self._held)


def _seconds(millis: Any) -> float:
    if not 0 <= millis < float("inf"):
        raise ValueError("no time")
    return float(millis) / 1000

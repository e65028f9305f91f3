"""The three functions that such code usually has, under their own names."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Dict, Optional, Tuple

from ._attempt import Attempt
from ._errors import LeaseLost
from ._jobs import Jobs
from ._values import NotAcquired

log = logging.getLogger("leasehold")


@dataclass(frozen=True)
class LockAnswer:
    """Whether the lock is ours, and if not, why: `already_finished` or `locked`."""

    acquired: bool
    reason: Optional[str] = None


class AnalysisLocks:
    """Locks by owner, over the jobs of a collection.

    A lock is released under the name that acquired it *and from the same program*: a name alone, reused by a worker that was
    started again, would free its successor's lock.
    """

    def __init__(self, jobs: Jobs, collection: str = "analyses") -> None:
        self._jobs, self._collection = jobs, collection
        self._held: Dict[Tuple[str, str], Attempt] = {}
        self._lock = threading.Lock()

    def acquire_analysis_lock(self, analysis_id: str, owner: str, ttl_sec: int = 300) -> LockAnswer:
        """Acquires the lock of an analysis, which lasts for `ttl_sec` unless `refresh_analysis_lock` is called before."""
        attempt = self._jobs.acquire(
            f"{self._collection}/{analysis_id}", worker=owner, ttl=ttl_sec, refreshes=False
        )
        if isinstance(attempt, NotAcquired):
            return LockAnswer(False, attempt.reason)
        with self._lock:
            self._held[analysis_id, owner] = attempt
        return LockAnswer(True)

    def release_analysis_lock(self, analysis_id: str, owner: str) -> None:
        """Releases the lock of an analysis, if this program holds it in this name. A failure is a warning."""
        with self._lock:
            attempt = self._held.pop((analysis_id, owner), None)
        if attempt is None:
            log.warning("there is no lock on %s by %s to release", analysis_id, owner)
        else:
            attempt.release()

    def refresh_analysis_lock(self, analysis_id: str, owner: str, ttl_sec: int = 300) -> None:
        """Extends the lock of an analysis, if this program holds it in this name; raises `LeaseLost` otherwise."""
        with self._lock:
            attempt = self._held.get((analysis_id, owner))
        if attempt is None:
            raise LeaseLost(f"{owner} does not hold {analysis_id} here", "unknown")
        attempt.refresh(ttl_sec)

    def is_lost(self, analysis_id: str, owner: str) -> bool:
        """Whether the lock is lost, or was never acquired here: the worker has to stop, because another may begin."""
        attempt = self.attempt(analysis_id, owner)
        return attempt is None or not attempt.is_held()

    def attempt(self, analysis_id: str, owner: str) -> Optional[Attempt]:
        """The attempt behind a lock that this program holds: its fence, `lost`, and how to complete it."""
        with self._lock:
            return self._held.get((analysis_id, owner))

"""Jobs that run once: the Python client of the Leasehold server.

    from leasehold import Jobs

    jobs = Jobs("http://127.0.0.1:7420", token)
    jobs.create("analyses/42", {"page": 7})
    run = jobs.run("analyses/42", lambda attempt: analyse(attempt.payload))

It needs nothing but the standard library.
"""

from ._analysis import AnalysisLocks, LockAnswer
from ._attempt import Attempt
from ._errors import (
    Invalid,
    JobDiffers,
    JobRunning,
    LeaseholdError,
    LeaseLost,
    NoSuchJob,
    NotAllowed,
    NotRetryable,
    TooMany,
    Unauthenticated,
    Unavailable,
)
from ._jobs import Jobs
from ._values import Held, Job, NotAcquired, Run

__all__ = [
    "AnalysisLocks",
    "Attempt",
    "Held",
    "Invalid",
    "Job",
    "JobDiffers",
    "JobRunning",
    "Jobs",
    "LeaseLost",
    "LeaseholdError",
    "LockAnswer",
    "NoSuchJob",
    "NotAcquired",
    "NotAllowed",
    "NotRetryable",
    "Run",
    "TooMany",
    "Unauthenticated",
    "Unavailable",
]

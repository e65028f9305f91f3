"""Calls to a server: one at a time, without redirects, repeated when it is not known whether they were done.

Tokens and lease ids never go into a log or an error.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import random
import socket
import ssl
import time
from typing import Any, Callable, Dict, Iterator, Optional, Tuple, Union
from urllib.parse import quote, urlsplit

from . import _json
from ._errors import Invalid, LeaseholdError, TooMany, Unauthenticated, Unavailable, from_problem

Token = Union[None, str, Callable[[], str]]

TRIES = 6
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
LONGEST_RETRY_AFTER = 5.0
LONGEST_ANSWER = 8 * 1024 * 1024


def _clock() -> Callable[[], float]:
    """A clock that nobody sets, and that keeps running while the machine sleeps."""
    for name in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC"):
        number = getattr(time, name, None)
        if number is not None:
            return lambda: time.clock_gettime(number)
    return time.monotonic


now = _clock()


class Server:
    """A server, and who is calling."""

    def __init__(self, url: str, token: Token, timeout: float, ca_file: Optional[str]) -> None:
        parts = urlsplit(url.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("a server is reached like https://leases.example.com or http://127.0.0.1:7420")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("a server's URL has no user, no password and nothing after its path; give the token by itself")
        self._host, self._port, self._path = parts.hostname, parts.port, parts.path.rstrip("/")
        self._tls = ssl.create_default_context(cafile=ca_file) if parts.scheme == "https" else None
        self._token, self.timeout = token, timeout

    def call(
        self,
        method: str,
        job: str,
        what: str = "",
        body: Any = None,
        tries: int = TRIES,
        before: Callable[[], object] = lambda: None,
    ) -> Tuple[float, int, Any]:
        """Calls until there is an answer, or `before`, which comes before every try, raises. Gives when the call that was
        answered was sent, its status and its body."""
        failures = 0
        while True:
            before()
            try:
                return self.call_once(method, job, what, body, self.timeout)
            except (Unavailable, TooMany) as error:
                failures += 1
                pause = getattr(error, "pause", None)
                if failures == tries or pause is None:
                    raise
                backoff = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (failures - 1)) * (0.5 + random.random() / 2)
                time.sleep(max(pause, backoff))

    def call_once(self, method: str, job: str, what: str, body: Any, timeout: float) -> Tuple[float, int, Any]:
        """Calls, whatever comes of it."""
        path, text = self._path + job_path(job) + what, _encoded(body)
        headers = {"Accept": "application/json", "User-Agent": "leasehold-python", **self._authorization()}
        if text is not None:
            headers["Content-Type"] = "application/json"
        sent = now()
        try:
            with contextlib.closing(self._connection(timeout, sent + timeout)) as connection:
                connection.connect()
                _hurry(connection.sock, sent + timeout)
                connection.request(method, path, text, headers)
                with connection.getresponse() as answer:
                    content, status = answer.read(LONGEST_ANSWER), answer.status
                    retry_after = answer.headers.get("Retry-After")
        except (OSError, http.client.HTTPException) as error:
            raise _may_pass(Unavailable(f"no answer from the server ({type(error).__name__}: {error})"), 0.0) from error
        return sent, status, _read(status, content, retry_after)

    def _authorization(self) -> Dict[str, str]:
        token = self._token() if callable(self._token) else self._token
        if token is None:
            return {}
        # What is in a file usually ends with a newline.
        token = token.strip() if isinstance(token, str) else None
        if token is None or not all("!" <= character <= "~" for character in token):
            # http.client would refuse it, too, and put it into its error.
            raise Unauthenticated("the token holds what no token can (it is not shown); look where it comes from")
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _connection(self, timeout: float, deadline: float) -> http.client.HTTPConnection:
        """A connection whose answer is there by the deadline: a timeout alone counts for each read anew."""
        if self._tls is not None:
            connection: Any = http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self._tls)
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        connection.response_class = lambda sock, *args, **options: http.client.HTTPResponse(
            _Reader(sock, deadline), *args, **options  # type: ignore[arg-type]
        )
        return connection  # type: ignore[no-any-return]


class _Reader(io.RawIOBase):
    """What comes from a socket until a deadline; to `HTTPResponse` it is the socket."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock, self._deadline, self._raw = sock, deadline, sock.makefile("rb", buffering=0)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Optional[int]:
        _hurry(self._sock, self._deadline)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _hurry(sock: socket.socket, deadline: float) -> None:
    """Lets the next step on a socket last until the deadline."""
    left = deadline - now()
    if left <= 0:
        raise TimeoutError("timed out")
    sock.settimeout(left)


@contextlib.contextmanager
def understanding() -> Iterator[None]:
    """Around reading an answer: one of another shape says nothing."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError):
        raise Unavailable("the answer is not what this call is answered with; is this a Leasehold server?") from None


def job_path(job: str) -> str:
    """The address of a job, `collection/id`. A collection may be below a document of another: `users/u1/analyses`."""
    collection, slash, name = job.rpartition("/")
    if not (collection and slash and name):
        raise Invalid(f"a job is `collection/id`, such as `analyses/42`; this is {job!r}")
    return f"/api/jobs/{quote(collection, safe='')}/{quote(name, safe='')}"


def _encoded(body: Any) -> Optional[bytes]:
    """A body as UTF-8, of which a server counts the bytes."""
    try:
        return None if body is None else _json.dumps(body).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(f"what is to be sent is no JSON: {error}") from None


def _read(status: int, content: bytes, retry_after: Optional[str]) -> Any:
    try:
        answer = _json.loads(content) if content else None
    except ValueError:
        answer = None
        if 200 <= status < 300:
            raise _may_pass(Unavailable("the answer is no JSON; is this a Leasehold server?"), 0.0) from None
    if 200 <= status < 300:
        return answer
    error = from_problem(status, answer)
    full = isinstance(answer, dict) and answer.get("code") == "too_many_leases"
    if status == 408 or status >= 500 or (status == 429 and not full):
        wanted = float(retry_after) if retry_after and retry_after.isdigit() else 0.0
        error = _may_pass(error, min(wanted, LONGEST_RETRY_AFTER))
    raise error


def _may_pass(error: LeaseholdError, pause: float) -> LeaseholdError:
    """Marks an error after which the same call may be sent again, after this pause."""
    error.pause = pause  # type: ignore[attr-defined]
    return error

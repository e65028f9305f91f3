"""Workers in Python against a real server."""

import json
import logging
import socket
import threading
import time
import traceback
import unittest
import uuid
from decimal import Decimal

from leasehold import (
    AnalysisLocks,
    Attempt,
    Invalid,
    JobDiffers,
    JobRunning,
    Jobs,
    LeaseLost,
    NoSuchJob,
    NotRetryable,
    Unauthenticated,
    Unavailable,
)

from .support import Fake, Proxy, Server, until


def setUpModule():
    global server
    logging.getLogger("leasehold").setLevel(logging.CRITICAL)
    server = Server()


def tearDownModule():
    server.end()


def new_id():
    return f"analyses/{uuid.uuid4()}"


def granted(lease_id, **times):
    """What a server answers to somebody who gets a job."""
    answer = {"acquired": True, "lease_id": lease_id, "fence": 1, "attempt": 1, "recovered": False, "payload": None}
    return 200, {}, json.dumps({**answer, **times}).encode()


class Case(unittest.TestCase):
    def setUp(self):
        self.jobs = Jobs(server.url, server.tokens["user-a"], worker="w1")
        self.other = Jobs(server.url, server.tokens["user-b"], worker="w2")
        self.id = new_id()

    def proxy(self):
        proxy = Proxy(server.address)
        self.addCleanup(proxy.end)
        return proxy

    def fake(self, answer):
        fake = Fake(answer)
        self.addCleanup(fake.end)
        return Jobs(fake.url)

    def acquired(self, jobs, **options):
        attempt = jobs.acquire(self.id, **options)
        self.assertIsInstance(attempt, Attempt, attempt)
        self.addCleanup(attempt.release)
        return attempt


class TheSource(Case):
    """Job lock: tests (docs/sources.md)."""

    def test_the_first_acquire_succeeds(self):
        self.assertTrue(self.jobs.create(self.id, {"page": 7}))
        attempt = self.acquired(self.jobs)
        self.assertTrue(attempt.acquired)
        self.assertEqual((attempt.payload, attempt.attempt, attempt.recovered), ({"page": 7}, 1, False))
        self.assertTrue(269 < attempt.time_left() <= 270, attempt.time_left())

    def test_of_two_at_once_one_succeeds(self):
        self.jobs.create(self.id)
        answers, together = [], threading.Barrier(8)

        def worker(number):
            jobs = Jobs(server.url, server.tokens["user-a"], worker=f"w{number}")
            together.wait()
            answers.append(jobs.acquire(self.id))

        threads = [threading.Thread(target=worker, args=(number,)) for number in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        winners = [answer for answer in answers if answer.acquired]
        self.assertEqual(len(winners), 1)
        self.assertEqual({answer.reason for answer in answers if not answer.acquired}, {"locked"})
        winners[0].release()

    def test_after_the_ttl_it_is_acquired_again_and_the_recovery_is_visible(self):
        self.jobs.create(self.id)
        proxy = self.proxy()
        first = self.acquired(Jobs(proxy.url, server.tokens["user-a"]), ttl=1)
        proxy.cut()
        second = None
        while second is None or not second.acquired:
            second = self.other.acquire(self.id)
        self.assertTrue(first.lost.is_set(), "it was told before anybody else could begin")
        self.addCleanup(second.release)
        self.assertTrue(second.recovered)
        self.assertGreater(second.fence, first.fence)

    def test_ready_and_failed_are_never_acquired(self):
        self.jobs.create(self.id)
        self.acquired(self.jobs).complete([1, 2])
        again = self.other.acquire(self.id)
        self.assertEqual((again.acquired, again.reason, again.status, again.result), (False, "already_finished", "READY", [1, 2]))
        self.id = new_id()
        self.jobs.create(self.id)
        self.assertFalse(self.acquired(self.jobs).fail("no such page", retryable=False))
        again = self.other.acquire(self.id)
        self.assertEqual((again.reason, again.status, again.error), ("already_finished", "FAILED", "no such page"))

    def test_a_foreign_release_changes_nothing_and_the_three_functions_have_their_own_names(self):
        self.jobs.create(self.id)
        locks, name = AnalysisLocks(self.jobs), self.id.split("/")[1]
        answer = locks.acquire_analysis_lock(name, "w1")
        self.assertEqual((answer.acquired, answer.reason), (True, None))
        answer = locks.acquire_analysis_lock(name, "w2", 300)
        self.assertEqual((answer.acquired, answer.reason), (False, "locked"))
        locks.release_analysis_lock(name, "w2")
        AnalysisLocks(self.other).release_analysis_lock(name, "w1")
        with self.assertRaises(LeaseLost):
            locks.refresh_analysis_lock(name, "w2")
        locks.refresh_analysis_lock(name, "w1", 600)
        self.assertGreater(locks.attempt(name, "w1").time_left(), 500)
        self.assertEqual(self.other.look(self.id).status, "RUNNING")
        locks.release_analysis_lock(name, "w1")
        self.assertTrue(locks.acquire_analysis_lock(name, "w3").acquired)
        locks.release_analysis_lock(name, "w3")
        with self.assertRaises(NoSuchJob):
            locks.acquire_analysis_lock("absent", "w1")


    def test_an_analysis_lock_is_refreshed_only_when_that_is_called(self):
        # It was refreshed in the background, so that a worker that hung kept its lock for ever.
        self.jobs.create(self.id)
        locks, name = AnalysisLocks(self.jobs), self.id.split("/")[1]
        locks.acquire_analysis_lock(name, "w1", 2)
        self.assertFalse(locks.is_lost(name, "w1"))
        self.assertTrue(locks.attempt(name, "w1").lost.wait(10))
        self.assertTrue(locks.is_lost(name, "w1"))
        until(lambda: locks.acquire_analysis_lock(name, "w2").acquired)
        locks.release_analysis_lock(name, "w2")


class Attempts(Case):
    def test_an_attempt_refreshes_itself(self):
        self.jobs.create(self.id)
        attempt = self.acquired(self.jobs, ttl=3)
        end = time.monotonic() + 4
        while time.monotonic() < end:
            self.assertEqual(attempt.check(), attempt.fence)
            self.assertEqual(self.other.acquire(self.id).reason, "locked")
            time.sleep(0.2)
        attempt.complete()
        self.assertIsNone(self.other.look(self.id).result)

    def test_a_lost_lease_is_told_and_a_late_word_is_refused(self):
        self.jobs.create(self.id)
        proxy, told = self.proxy(), threading.Event()
        first = self.acquired(Jobs(proxy.url, server.tokens["user-a"]), ttl=3, on_lost=lambda attempt: told.set())
        proxy.cut()
        self.assertTrue(first.lost.wait(30))
        self.assertEqual(first.because, "deadline")
        self.assertTrue(told.wait(30))
        self.assertFalse(first.is_held())
        with self.assertRaises(LeaseLost):
            first.check()
        until(lambda: self.jobs.look(self.id).status == "QUEUED")
        second = self.acquired(self.other)
        proxy.heal()
        with self.assertRaises(LeaseLost) as late:
            first.complete("late")
        self.assertEqual((late.exception.because, late.exception.held.name), ("expired", "w2"))
        second.complete("in time")
        self.assertEqual(self.jobs.look(self.id).result, "in time")

    def test_a_short_break_is_survived(self):
        self.jobs.create(self.id)
        proxy = self.proxy()
        attempt = self.acquired(Jobs(proxy.url, server.tokens["user-a"]), ttl=5)
        proxy.cut()
        until(lambda: attempt.time_left() < 2.5)
        proxy.heal()
        until(lambda: attempt.time_left() > 3)
        self.assertFalse(attempt.lost.is_set())

    def test_what_is_lost_is_not_refreshed(self):
        # A worker that called `refresh()` after its deadline was told nothing, went on with work that was not its own any
        # more, and kept everybody else out for another TTL.
        asked = []

        def answer(path, body):
            asked.append(path.rsplit("/", 1)[1])
            return granted(body["lease_id"], refresh_after_ms=60_000, stop_after_ms=50)

        attempt = self.fake(answer).acquire(self.id)
        self.assertTrue(attempt.lost.wait(30))
        with self.assertRaises(LeaseLost) as lost:
            attempt.refresh()
        self.assertEqual((lost.exception.because, asked), ("deadline", ["acquire"]))

    def test_an_answer_to_a_refresh_that_comes_too_late_is_a_loss(self):
        # The same worker, with a server that was stopped for a while in the middle of the refresh.
        may_answer = threading.Event()

        def answer(path, body):
            if path.endswith("/refresh"):
                may_answer.wait(30)
            return granted(body.get("lease_id"), refresh_after_ms=60_000, stop_after_ms=300)

        attempt = self.fake(answer).acquire(self.id, on_lost=lambda attempt: may_answer.set())
        with self.assertRaises(LeaseLost) as lost:
            attempt.refresh(600)
        self.assertEqual((lost.exception.because, attempt.time_left()), ("deadline", 0))

    def test_on_lost_runs_in_a_thread_of_its_own(self):
        # It was called by whoever noticed the loss: by a `check()`, the work itself had to wait for it.
        self.jobs.create(self.id)
        threads = []
        attempt = self.acquired(self.jobs, on_lost=lambda attempt: threads.append(threading.current_thread()))
        attempt._lose("deadline")
        until(lambda: threads)
        self.assertIsNot(threads[0], threading.current_thread())
        self.jobs._server.call("POST", self.id, "/release", attempt._claim())

    def test_a_refused_refresh_is_a_loss(self):
        self.jobs.create(self.id)
        attempt = self.acquired(self.jobs, ttl=3)
        # Somebody with the lease id gives the job back behind our back.
        self.jobs._server.call("POST", self.id, "/release", attempt._claim())
        self.assertTrue(attempt.lost.wait(30))
        self.assertEqual(attempt.because, "released")

    def test_calls_whose_answers_got_lost_are_repeated_and_lead_to_one_attempt(self):
        proxy = self.proxy()
        jobs = Jobs(proxy.url, server.tokens["user-a"], worker="w1")
        proxy.swallow_answers(2)
        jobs.create(self.id, 1)
        proxy.swallow_answers(2)
        attempt = self.acquired(jobs)
        self.assertEqual(attempt.attempt, 1)
        proxy.swallow_answers(2)
        attempt.complete("once")
        job = self.other.look(self.id)
        self.assertEqual((job.status, job.result, job.attempts), ("READY", "once", 1))

    def test_as_a_context_manager_it_gives_the_job_back(self):
        self.jobs.create(self.id)
        with self.assertRaises(RuntimeError), self.jobs.acquire(self.id):
            raise RuntimeError("not the job's fault")
        self.assertEqual(self.other.look(self.id).status, "QUEUED")
        self.assertFalse(self.acquired(self.other).recovered)

    def test_a_release_that_fails_is_only_a_warning(self):
        self.jobs.create(self.id)
        proxy = self.proxy()
        attempt = self.acquired(Jobs(proxy.url, server.tokens["user-a"]))
        proxy.cut()
        with self.assertLogs("leasehold", "WARNING") as logs:
            logging.getLogger("leasehold").setLevel(logging.WARNING)
            attempt.release()
        logging.getLogger("leasehold").setLevel(logging.CRITICAL)
        self.assertIn("could not be given back", logs.output[-1])
        self.assertNotIn(attempt._lease_id, "".join(logs.output) + repr(attempt))


class Runs(Case):
    def test_what_the_work_returns_is_the_result_and_is_replayed(self):
        self.jobs.create(self.id, {"page": 7})
        run = self.jobs.run(self.id, lambda attempt: {"pages": attempt.payload["page"] + 1})
        self.assertEqual((run.outcome, run.result, run.finished), ("done", {"pages": 8}, True))
        run = self.other.run(self.id, lambda attempt: self.fail("it must not run again"))
        self.assertEqual((run.outcome, run.result), ("already_finished", {"pages": 8}))

    def test_an_exception_fails_the_attempt_and_is_tried_again_as_often_as_it_may(self):
        self.jobs.create(self.id, max_attempts=2)

        def broken(attempt):
            raise ValueError("no disk")

        for again in (True, False):
            run = self.jobs.run(self.id, broken)
            self.assertEqual((run.outcome, run.error, run.again, run.finished), ("failed", "no disk", again, not again))
        self.assertEqual(self.jobs.run(self.id, broken).outcome, "already_finished")
        self.assertEqual(self.jobs.reset(self.id).attempts, 0)

        def hopeless(attempt):
            raise NotRetryable("never")

        self.assertFalse(self.jobs.run(self.id, hopeless).again)
        self.assertEqual(self.jobs.look(self.id).error, "never")

    def test_a_result_that_cannot_be_kept_fails_the_job_for_good(self):
        # The job was given back, the queue delivered it again, and the same work was done for the same refusal, for ever.
        for result in ("x" * 70_000, {1, 2}, float("nan"), "\ud800", object()):
            self.id = new_id()
            self.jobs.create(self.id)
            run = self.jobs.run(self.id, lambda attempt: result)
            self.assertEqual((run.outcome, run.again, run.finished), ("failed", False, True))
            self.assertIn("the result cannot be kept", run.error)
            job = self.jobs.look(self.id)
            self.assertEqual((job.status, job.error), ("FAILED", run.error))

    def test_numbers_are_not_rounded(self):
        """2^70 + 1 and 2^70 + 2 counted as the same payload, and came back as floats."""
        fine = Decimal("0.1000000000000000055511151231257827")
        payload = {"n": 2**70 + 1, "d": fine, "f": 0.1, "one": 1, "float": 1.0, "deep": [Decimal("1E+400"), (None, "\u4f1a")]}
        self.assertTrue(self.jobs.create(self.id, payload))
        self.assertFalse(self.jobs.create(self.id, payload))
        for other in ({**payload, "n": 2**70 + 2}, {**payload, "one": 1.0}, {**payload, "d": 0.1}):
            with self.assertRaises(JobDiffers):
                self.jobs.create(self.id, other)
        attempt = self.acquired(self.jobs)
        expected = {**payload, "deep": [Decimal("1E+400"), [None, "\u4f1a"]]}
        self.assertEqual(attempt.payload, expected)
        kinds = {name: type(value) for name, value in attempt.payload.items()}
        self.assertEqual(kinds, {"n": int, "d": Decimal, "f": float, "one": int, "float": float, "deep": list})
        attempt.complete([2**70 + 1, fine, 1])
        self.assertEqual(self.other.look(self.id).result, [2**70 + 1, fine, 1])

    def test_what_is_no_json_and_a_key_that_is_there_twice_is_invalid(self):
        with self.assertRaisesRegex(Invalid, 'the key "1" is there twice'):
            self.jobs.create(self.id, {1: "a", "1": "b"})
        for payload in (float("nan"), Decimal("Infinity"), {(1, 2): 3}, [object()]):
            with self.assertRaises(Invalid):
                self.jobs.create(self.id, payload)
        self.assertTrue(self.jobs.create(self.id, {1: 2, None: 3, True: [], 1.5: {}}))
        self.assertEqual(self.jobs.look(self.id).payload, {"1": [], "null": 3, "1.5": {}})

    def test_a_collection_may_be_below_a_document_of_another(self):
        inner = f"users/u1/{self.id}"
        self.assertTrue(self.jobs.create(inner, 7))
        self.assertEqual(self.jobs.look(inner).id, inner)
        with self.assertRaises(Invalid):
            self.jobs.look("users/u1/42")

    def test_an_acquire_whose_answer_never_comes_is_withdrawn(self):
        """Its attempt counted, although nobody worked on it."""
        self.jobs.create(self.id, max_attempts=1)
        proxy = self.proxy()
        proxy.swallow_answers(6)
        with self.assertRaises(Unavailable):
            Jobs(proxy.url, server.tokens["user-a"]).acquire(self.id)
        until(lambda: self.jobs.look(self.id).status == "QUEUED")
        self.assertEqual(self.jobs.look(self.id).attempts, 0)
        self.assertEqual(self.acquired(self.jobs).attempt, 1)

    def test_an_acquire_that_is_interrupted_is_withdrawn(self):
        self.jobs.create(self.id, max_attempts=1)
        proxy = self.proxy()
        proxy.swallow_answers(1)
        interrupted = Jobs(proxy.url, server.tokens["user-a"])
        call_once, calls = interrupted._server.call_once, []

        def interrupt(*arguments):
            calls.append(arguments)
            try:
                return call_once(*arguments)
            except Unavailable:
                raise KeyboardInterrupt from None

        interrupted._server.call_once = interrupt
        with self.assertRaises(KeyboardInterrupt):
            interrupted.acquire(self.id)
        until(lambda: self.jobs.look(self.id).status == "QUEUED")
        self.assertEqual((self.jobs.look(self.id).attempts, len(calls)), (0, 2))

    def test_a_long_result_in_any_language_is_kept(self):
        # Escaped, as json.dumps likes it, a Japanese text was twice as long as it is, and refused.
        self.jobs.create(self.id)
        self.assertEqual(self.jobs.run(self.id, lambda attempt: "会" * 21_000).outcome, "done")

    def test_of_a_very_long_error_the_beginning_is_kept(self):
        # An exception with a whole page in it was refused, and the attempt was neither failed nor counted.
        def broken(attempt):
            raise ValueError("no disk\0" + "\x01\ud800😀" * 30_000)

        self.jobs.create(self.id, max_attempts=1)
        self.assertFalse(self.jobs.run(self.id, broken).again)
        self.assertTrue(self.jobs.look(self.id).error.startswith("no disk\x01?😀"))

    def test_work_whose_lease_is_lost_stops_and_its_result_is_not_kept(self):
        self.jobs.create(self.id)
        proxy = self.proxy()
        steps = []

        def work(attempt):
            proxy.cut()
            while True:
                attempt.check()
                steps.append(1)
                attempt.lost.wait(0.05)

        with self.assertRaises(LeaseLost):
            Jobs(proxy.url, server.tokens["user-a"]).run(self.id, work, ttl=1)
        self.assertTrue(steps)
        until(lambda: self.jobs.look(self.id).status == "QUEUED")

    def test_while_somebody_works_on_it_it_is_locked(self):
        self.jobs.create(self.id)
        attempt = self.acquired(self.jobs)
        run = self.other.run(self.id, lambda attempt: None)
        self.assertEqual((run.outcome, run.held.name, run.finished), ("locked", "w1", False))
        with self.assertRaises(JobRunning):
            self.other.reset(self.id)
        attempt.complete()


class Errors(Case):
    def test_what_goes_wrong_has_a_name(self):
        self.assertIsNone(self.jobs.look(self.id))
        with self.assertRaises(NoSuchJob):
            self.jobs.acquire(self.id)
        self.jobs.create(self.id, 1)
        self.assertFalse(self.jobs.create(self.id, 1))
        with self.assertRaises(JobDiffers):
            self.jobs.create(self.id, 2)
        with self.assertRaises(Unauthenticated):
            Jobs(server.url, "nonsense").look(self.id)
        with self.assertRaisesRegex(Invalid, "between 1s and 24h"):
            self.jobs.acquire(self.id, ttl=0)
        for bad in ("42", "/42", "a/", "a/..", "a/b/c"):
            with self.assertRaises(Invalid):
                self.jobs.look(bad)
        with self.assertRaisesRegex(Invalid, "no JSON"):
            self.jobs.create(self.id, {1, 2})
        for url in ("ftp://x", "leases.example.com", "http://me:hunter2@x"):
            with self.assertRaises(ValueError) as refused:
                Jobs(url)
            self.assertNotIn("hunter2", str(refused.exception))

    def test_a_server_that_asks_to_be_left_alone_is(self):
        locked = b'{"acquired": false, "reason": "locked", "status": "RUNNING"}'
        wait = {"Retry-After": "1"}
        answers = [(503, wait, b"{}"), (429, wait, b"{}"), (408, wait, b'{"code": "too_slow"}'), (200, {}, locked)]
        asked = []

        def answer(path, body):
            asked.append((time.monotonic(), body))
            return answers[len(asked) - 1]

        self.assertEqual(self.fake(answer).acquire(self.id).reason, "locked")
        self.assertEqual(len({body["lease_id"] for _, body in asked}), 1, "the same lease id each time")
        self.assertTrue(all(later[0] - earlier[0] >= 1 for earlier, later in zip(asked, asked[1:])))

    def test_a_token_that_cannot_be_one_is_refused_without_being_shown(self):
        # A token from a file had its newline with it. http.client put all of it into a ValueError, which the handler of
        # docs/worker.md answered to whoever asked.
        self.assertIsNone(Jobs(server.url, server.tokens["user-a"] + "\n").look(self.id))
        for token in ("se cret", "se\ncret", "s\u00e9cret", b"secret", lambda: "se\rcret"):
            with self.assertRaises(Unauthenticated) as refused:
                Jobs(server.url, token).look(self.id)
            error = refused.exception
            self.assertNotIn("cret", "".join(traceback.format_exception(type(error), error, error.__traceback__)))

    def test_an_answer_of_another_shape_says_nothing(self):
        # A proxy's own page made a worker end with a TypeError or a KeyError, which no handler expects.
        calls = (
            lambda jobs: jobs.create(self.id),
            lambda jobs: jobs.look(self.id),
            lambda jobs: jobs.acquire(self.id),
            lambda jobs: jobs.reset(self.id),
        )
        for content in (b"null", b"[]", b"{}", b'"x"', b"7", b"", b'{"acquired": true}', b'{"acquired": false}'):
            jobs = self.fake(lambda path, body: (200, {}, content))
            for call in calls:
                with self.assertRaises(Unavailable, msg=content):
                    call(jobs)
        for times in ({}, {"refresh_after_ms": 1, "stop_after_ms": None}, {"refresh_after_ms": 1, "stop_after_ms": float("nan")}):
            with self.assertRaises(Unavailable, msg=times):
                self.fake(lambda path, body: granted("x", **times)).acquire(self.id)
        for holder in ("null", '"x"', "{}", "[]"):
            over = b'{"code": "lease_over", "because": "expired", "fence": 7, "holder": %s}' % holder.encode()
            with self.assertRaises(LeaseLost) as lost:
                self.fake(lambda path, body: (410, {}, over)).acquire(self.id)
            self.assertEqual((lost.exception.because, lost.exception.held), ("expired", None))

    def test_the_timeout_is_for_the_whole_call(self):
        # A server that sent a byte now and then held an acquire for a minute, with a timeout of 0.3 s: it counted for each
        # read anew.
        for beginning in (b"HTTP/1.1 200 ", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"):
            with socket.create_server(("127.0.0.1", 0)) as listener:
                threading.Thread(target=drip, args=(listener, beginning), daemon=True).start()
                jobs = Jobs("http://127.0.0.1:%d" % listener.getsockname()[1])
                start = time.monotonic()
                with self.assertRaisesRegex(Unavailable, "timed out"):
                    jobs._server.call_once("GET", self.id, "", None, 0.3)
                self.assertLess(time.monotonic() - start, 5)

    def test_a_server_that_is_not_there_is_unavailable(self):
        with self.assertRaises(Unavailable):
            Jobs("http://127.0.0.1:9", timeout=1).look(self.id)


def drip(listener, beginning):
    """Begins with an answer, and never ends it."""
    client, _ = listener.accept()
    with client:
        try:
            client.sendall(beginning)
            while True:
                client.sendall(b"x")
                time.sleep(0.02)
        except OSError:
            pass


if __name__ == "__main__":
    unittest.main()

"""Workers in Python on Firestore documents, through a server, with Google's own client for Python beside them."""

import datetime
import json
import logging
import os
import unittest
import urllib.error
import urllib.request
import uuid

from leasehold import AnalysisLocks, Invalid, Jobs, LeaseLost, NoSuchJob

from .support import Emulator, Server

try:
    from google.cloud import firestore
except ImportError:
    firestore = None

PROJECT = f"python-{os.getpid()}"


def setUpModule():
    global emulator, server, documents
    if firestore is None:
        raise unittest.SkipTest("google-cloud-firestore is not installed; cargo xtask test --only clients installs it")
    emulator = Emulator()
    if emulator.host is None:
        raise unittest.SkipTest(f"{Emulator.PACKAGE} or java is not installed")
    logging.getLogger("leasehold").setLevel(logging.CRITICAL)
    os.environ["FIRESTORE_EMULATOR_HOST"] = emulator.host
    server = Server(f"firestore:{PROJECT}?emulator={emulator.host}")
    documents = firestore.Client(project=PROJECT)


def tearDownModule():
    server.end()
    documents.close()
    emulator.end()
    os.environ.pop("FIRESTORE_EMULATOR_HOST")


def lock(document, owner, ttl=300):
    """What a program does that follows Job lock (docs/sources.md) with Google's client, and knows nothing of Leasehold."""

    @firestore.transactional
    def acquire(transaction):
        data = document.get(transaction=transaction).to_dict()
        now = datetime.datetime.now(datetime.timezone.utc)
        expires_at = data.get("lockExpiresAt")
        if data.get("lockOwner") and expires_at and datetime.datetime.fromisoformat(expires_at.replace("Z", "+00:00")) > now:
            return False
        until = (now + datetime.timedelta(seconds=ttl)).isoformat()
        transaction.update(document, {"lockOwner": owner, "lockExpiresAt": until})
        return True

    return acquire(documents.transaction())


class OnFirestore(unittest.TestCase):
    def setUp(self):
        self.jobs = Jobs(server.url, server.tokens["user-a"], worker="w1")
        self.id = f"analyses/{uuid.uuid4()}"
        self.document = documents.document(self.id)

    def fields(self):
        return self.document.get().to_dict()

    def test_a_document_of_googles_client_is_acquired_as_it_is_and_gets_a_map_as_its_result(self):
        with self.assertRaises(NoSuchJob):
            self.jobs.acquire(self.id)
        payload = {"page": 7, "deep": {"tags": ["a", 1.5, None, True], "n": 2**53 + 1}}
        self.document.set({"status": "PROCESSING", "payload": payload, "title": "theirs"})
        with self.jobs.acquire(self.id) as attempt:
            self.assertEqual(attempt.payload, payload)
            held = self.fields()
            self.assertEqual((held["status"], held["lockOwner"], held["lockFence"]), ("PROCESSING", "user-a", attempt.fence))
            attempt.complete({"pages": [1, 2], "n": 2**62})
        done = self.fields()
        self.assertEqual((done["status"], done["result"]), ("READY", {"pages": [1, 2], "n": 2**62}))
        self.assertEqual((done["title"], done["payload"]), ("theirs", payload))
        self.assertNotIn("lockOwner", done)

    def test_what_this_client_creates_is_a_map_for_googles(self):
        payload = {"page": 7, "deep": {"tags": ["a", 1.5, None, True]}}
        self.assertTrue(self.jobs.create(self.id, payload))
        self.assertEqual(self.fields()["payload"], payload)
        self.document.update({"status": "READY", "result": {"pages": 7}})
        refused = self.jobs.acquire(self.id)
        self.assertEqual((refused.reason, refused.result), ("already_finished", {"pages": 7}))

    def test_a_number_that_firestore_has_no_type_for_is_kept_as_json_and_not_rounded(self):
        self.assertTrue(self.jobs.create(self.id, {"n": 2**70 + 1}))
        self.assertEqual(self.fields()["payload"], '{"n":1180591620717411303425}')
        self.assertEqual(self.jobs.look(self.id).payload, {"n": 2**70 + 1})

    def test_a_lock_of_googles_client_and_one_of_ours_keep_each_other_out(self):
        self.document.set({"status": "PROCESSING"})
        self.assertTrue(lock(self.document, "theirs"))
        refused = self.jobs.acquire(self.id)
        self.assertEqual((refused.reason, refused.held.id), ("locked", "theirs"))
        self.document.update({"lockOwner": firestore.DELETE_FIELD, "lockExpiresAt": firestore.DELETE_FIELD})
        attempt = self.jobs.acquire(self.id)
        self.assertFalse(lock(self.document, "theirs"))
        # It takes it all the same, as a program may that decides by its own rules.
        self.document.update({"lockOwner": "theirs", "lockExpiresAt": "2999-01-01T00:00:00Z"})
        with self.assertRaises(LeaseLost):
            attempt.refresh()
        with self.assertRaises(LeaseLost):
            attempt.complete("late")
        self.assertEqual((self.fields()["status"], self.fields()["lockOwner"]), ("PROCESSING", "theirs"))

    def test_a_fence_of_another_program_is_followed_or_refused_with_what_to_do(self):
        self.document.set({"status": "PROCESSING", "lockFence": 2**52})
        with self.jobs.acquire(self.id) as attempt:
            self.assertEqual(attempt.fence, 2**52 + 1)
        for fence in (2**62, "the last one", 1e300):
            self.document.update({"lockFence": fence})
            with self.assertRaisesRegex(Invalid, "lockFence"):
                self.jobs.acquire(self.id)
        self.document.update({"lockFence": firestore.DELETE_FIELD})
        self.jobs.acquire(self.id).release()

    def test_a_document_in_a_subcollection(self):
        inner = f"users/u1/{self.id}"
        documents.document(inner).set({"status": "PROCESSING"})
        self.jobs.acquire(inner).complete({"pages": 1})
        self.assertEqual(documents.document(inner).get().to_dict()["result"], {"pages": 1})

    def test_the_three_functions(self):
        self.document.set({"status": "PROCESSING"})
        locks, name = AnalysisLocks(self.jobs), self.id.split("/")[1]
        self.assertTrue(locks.acquire_analysis_lock(name, "w1").acquired)
        self.assertFalse(lock(self.document, "theirs"))
        self.assertEqual(locks.acquire_analysis_lock(name, "w2").reason, "locked")
        locks.release_analysis_lock(name, "w1")
        self.assertTrue(lock(self.document, "theirs"))

    def test_the_server_says_that_it_has_jobs_only(self):
        self.assertIs(server.started["jobs_only"], True)
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{server.url}/api/documents/minutes/lock")
        with refused.exception as answer:
            self.assertEqual((answer.code, json.load(answer)["code"]), (404, "jobs_only"))
        with urllib.request.urlopen(f"{server.url}/readyz") as answer:
            self.assertEqual(answer.read(), b"ready, jobs only\n")

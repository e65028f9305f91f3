"""The code of docs/worker.md and of the repository's first page, as it stands there."""

import http.client
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.parse
import urllib.request
import uuid

from leasehold import Jobs

from .support import Server, until

ROOT = pathlib.Path(__file__).resolve().parents[3]

# What a stream and its consumer group do, for one consumer: what was read and not acknowledged comes again.
REDIS = '''
import json, os
class ResponseError(Exception): pass
class Redis:
    @classmethod
    def from_url(cls, url, decode_responses): return cls()
    def __init__(self):
        self.fresh = [(str(n), task) for n, task in enumerate(json.loads(os.environ["TASKS"]))]
        self.pending = {}
    def xgroup_create(self, stream, group, id, mkstream): raise ResponseError("it is there")
    def xautoclaim(self, stream, group, me, min_idle_time, count): return None, list(self.pending.items()), None
    def xreadgroup(self, group, me, streams, count, block):
        entries, self.fresh = self.fresh, []
        self.pending.update(entries)
        if not self.pending: raise SystemExit(0)
        return [["tasks", entries]]
    def xack(self, stream, group, entry): del self.pending[entry]
'''


# Tasks that make no sense. The handlers crashed on some, and ran a job `analyses/undefined` for others.
NONSENSE = (
    "nonsense", "", "[]", '"x"', "null", "7", "{}", '{"analysisId": "42"}', '{"payload": {"pages": 3}}',
    '{"analysisId": 42, "payload": {"pages": 3}}', '{"analysisId": null, "payload": {"pages": 3}}',
    '{"analysisId": "", "payload": {"pages": 3}}', '{"analysisId": "a/b", "payload": {"pages": 3}}',
    '{"analysisId": "..", "payload": {"pages": 3}}', '{"analysisId": "42", "payload": null}',
    '{"analysisId": "42", "payload": []}', '{"analysisId": "42", "payload": {"pages": "3"}}',
)


def program(name):
    """The block of code on the page that names itself so."""
    blocks = re.findall(r"^```\w+\n(.*?)^```$", (ROOT / "docs/worker.md").read_text(), re.S | re.M)
    return next(block for block in blocks if re.search(rf"^# {re.escape(name)}\b", block, re.M))


def setUpModule():
    global server, jobs
    server = Server()
    jobs = Jobs(server.url, server.tokens["user-a"])


def tearDownModule():
    server.end()


class FirstPage(unittest.TestCase):
    def test_the_worker_runs_as_it_is_printed_and_works_once(self):
        block = re.search(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.S | re.M).group(1)
        env = {**os.environ, "LEASEHOLD_URL": server.url, "LEASEHOLD_TOKEN": server.tokens["user-a"],
               "PYTHONPATH": str(ROOT / "clients/python")}
        for outcome in ("done", "already_finished"):
            said = subprocess.run([sys.executable, "-c", block], env=env, capture_output=True, text=True, timeout=60)
            self.assertEqual((said.stdout, said.stderr), (f"{outcome} {{'words': 1750}}\n", ""))


class Worker(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        binary = pathlib.Path(os.environ.get("LEASEHOLD_BIN", "leasehold")).resolve().parent
        self.environment = {
            **os.environ,
            "LEASEHOLD_URL": server.url,
            "LEASEHOLD_TOKEN": server.tokens["user-a"],
            "PYTHONPATH": f"{ROOT / 'clients/python'}{os.pathsep}{self.folder}",
            "PATH": f"{self.folder}{os.pathsep}{binary}{os.pathsep}{os.environ['PATH']}",
        }

    def start(self, name, **environment):
        (self.folder / name).write_text(program(name))
        process = subprocess.Popen(
            [sys.executable, str(self.folder / name)],
            env={**self.environment, **environment}, stdout=subprocess.PIPE, text=True,
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def post(self, url, body):
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body.encode(), method="POST")) as answer:
                return answer.status, json.load(answer), answer.headers
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error), error.headers

    def post_without_length(self, url):
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc)
        self.addCleanup(connection.close)
        connection.putrequest("POST", urllib.parse.urlsplit(url).path)
        connection.endheaders()
        return connection.getresponse().status

    def test_the_handler_answers_nobody_with_its_token(self):
        # The token came from a file, with a newline, and whoever posted a task got it back in the error.
        task = json.dumps({"analysisId": str(uuid.uuid4()), "payload": {"pages": 3}})
        for token, expected in ((server.tokens["user-a"] + "\n", 200), ("se\ncret", 503)):
            url = self.start("handler.py", PORT="0", LEASEHOLD_TOKEN=token).stdout.readline().strip()
            status, body, _ = self.post(url, task)
            self.assertEqual((status, "cret" in json.dumps(body)), (expected, False), body)

    def test_the_handler_behind_cloud_tasks(self):
        for on_locked, expected in (("", 503), ("skip", 200)):
            url = self.start("handler.py", PORT="0", ON_LOCKED=on_locked).stdout.readline().strip()
            name = str(uuid.uuid4())
            task = json.dumps({"analysisId": name, "payload": {"pages": 3}})
            status, body, _ = self.post(url, task)
            self.assertEqual((status, body["outcome"], body["result"]), (200, "done", {"pages": 3}))
            status, body, _ = self.post(url, task)
            self.assertEqual((status, body["outcome"], body["result"]), (200, "already_finished", {"pages": 3}))
            self.assertEqual(self.post(url, task.replace("3}", "4}"))[0], 400)
            for nonsense in NONSENSE:
                self.assertEqual(self.post(url, nonsense)[0], 400, nonsense)
            self.assertEqual(self.post_without_length(url), 400)
            locked = str(uuid.uuid4())
            jobs.create(f"analyses/{locked}", {"pages": 3})
            with jobs.acquire(f"analyses/{locked}"):
                status, body, headers = self.post(url, json.dumps({"analysisId": locked, "payload": {"pages": 3}}))
            self.assertEqual((status, body["outcome"]), (expected, "locked"))
            self.assertEqual(headers["Retry-After"], "10" if expected == 503 else None)

    def test_the_consumer_of_a_queue_acknowledges_only_what_is_finished(self):
        (self.folder / "redis.py").write_text(REDIS)
        names = [f"analyses/{uuid.uuid4()}" for _ in range(2)]
        # One task twice, and one that somebody else is working on at first.
        tasks = [{"job": name, "payload": '{"pages": 1}'} for name in (names[0], names[0], names[1])]
        jobs.create(names[1], {"pages": 1})
        attempt = jobs.acquire(names[1])
        process = self.start("consumer.py", TASKS=json.dumps(tasks))
        lines = [process.stdout.readline() for _ in range(4)]
        self.assertTrue(lines[0].endswith(f"works on {names[0]}\n"), lines)
        self.assertEqual([line.split()[-1] for line in lines[1:]], ["done", "already_finished", "locked"])
        attempt.release()
        self.assertEqual(process.wait(60), 0, "everything is acknowledged in the end")
        until(lambda: jobs.look(names[1]).status == "READY")

    def report(self, make_report):
        """Makes the script, which calls another one to make the report; answers a function that runs it."""
        (self.folder / "make_report").write_text(f"#!/bin/sh\n{make_report}\n")
        (self.folder / "make_report").chmod(0o755)
        script = self.folder / "report.sh"
        script.write_text(program("report.sh").replace("reports/", f"reports-{uuid.uuid4()}/"))
        return lambda: subprocess.run(["sh", str(script)], env=self.environment, capture_output=True, text=True)

    def test_the_script_that_makes_a_report_once_a_day(self):
        for printed in ('{"pages":12}', "- 12 pages"):
            run = self.report(f"echo '{printed}'")
            ran = [run(), run()]
            self.assertEqual([one.returncode for one in ran], [0, 0], ran)
            self.assertRegex(ran[0].stdout, r"✓ reports-.* is done\n$")
            self.assertRegex(ran[1].stderr, f"is done already: .*{re.escape(printed)}")
        self.environment["LEASEHOLD_URL"] = "http://127.0.0.1:9"
        self.assertNotEqual(run().returncode, 0)

    def test_a_report_that_is_refused_is_tried_again(self):
        # The job was in nobody's hands any more, and RUNNING until its lease had run out.
        refused = self.report("head -c 70000 /dev/zero | tr '\\0' x")()
        job = jobs.look(re.search(r"reports-\S+", refused.stdout).group())
        self.assertEqual((refused.returncode, job.status, job.attempts), (1, "QUEUED", 1), refused)


if __name__ == "__main__":
    unittest.main()

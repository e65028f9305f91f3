"""A real server with made-up users, a made-up server, and a network that can be cut."""

import http.server
import json
import os
import shutil
import socket
import subprocess
import threading
import time


class Server:
    """`leasehold serve --dev` on a free port, with everything in memory unless another store is named."""

    def __init__(self, store="memory:"):
        program = os.environ.get("LEASEHOLD_BIN", "leasehold")
        arguments = ["serve", "--dev", "--json", "--listen", "127.0.0.1:0", "--store", store, "--log", "error"]
        self.process = subprocess.Popen([program, *arguments], stdout=subprocess.PIPE, text=True)
        self.started = json.loads(self.process.stdout.readline())
        self.url, self.tokens = self.started["url"], self.started["tokens"]

    @property
    def address(self):
        host, port = self.url.removeprefix("http://").split(":")
        return host, int(port)

    def end(self):
        self.process.terminate()
        self.process.wait()
        self.process.stdout.close()


class Emulator:
    """Google's Firestore emulator, from its package, or the one that FIRESTORE_EMULATOR_HOST names."""

    PACKAGE = "google-cloud-cli-firestore-emulator"
    # Ends with this program, in whatever way that ends: the other end of its standard input closes.
    KEEPER = """trap '' INT TERM HUP
        java -Xmx512m -cp "$1" com.google.cloud.datastore.emulator.firestore.CloudFirestore start --host=127.0.0.1 --port="$2" &
        java=$!; cat; kill -KILL $java"""

    def __init__(self):
        self.host, self._keeper = os.environ.get("FIRESTORE_EMULATOR_HOST"), None
        jar = None if self.host else self._jar()
        if jar and shutil.which("java"):
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            keeper = ["sh", "-c", self.KEEPER, "keeper", jar, str(port)]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            self._keeper = subprocess.Popen(keeper, stdin=subprocess.PIPE, **quiet)
            self.host = f"127.0.0.1:{port}"
            until(lambda: _listens(port), seconds=60)

    def _jar(self):
        if not shutil.which("dpkg"):
            return None
        listed = subprocess.run(["dpkg", "-L", self.PACKAGE], capture_output=True, text=True, check=False).stdout
        return next((line for line in listed.splitlines() if line.endswith("firestore-emulator.jar")), None)

    def end(self):
        if self._keeper:
            self._keeper.stdin.close()
            self._keeper.wait()


def _listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


class Fake:
    """A server whose answers are those of a function: `answer(path, body)` gives the status, the headers and the body."""

    def __init__(self, answer):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                status, headers, content = answer(self.path, json.loads(body) if body else None)
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_PUT = do_POST

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def end(self):
        self._server.shutdown()
        self._server.server_close()


class Proxy:
    """Passes connections on to a server until it is cut, and again when it is healed."""

    def __init__(self, upstream):
        self._upstream, self._open, self._cut, self._swallow = upstream, [], False, 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self):
        """Ends every connection, and closes new ones at once."""
        with self._lock:
            self._cut = True
            for one in self._open:
                _shut(one)
            self._open.clear()

    def heal(self):
        with self._lock:
            self._cut = False

    def swallow_answers(self, count):
        """The next so many requests arrive, and their answers do not."""
        with self._lock:
            self._swallow = count

    def end(self):
        self.cut()
        self._listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._cut:
                    _shut(client)
                    continue
                server = socket.create_connection(self._upstream)
                self._open += [client, server]
                swallows = self._swallow > 0
                self._swallow -= swallows
            threading.Thread(target=_pump, args=(client, server, False), daemon=True).start()
            threading.Thread(target=_pump, args=(server, client, swallows), daemon=True).start()


def _pump(source, target, swallows):
    try:
        while True:
            data = source.recv(65536)
            if not data or swallows:
                break
            target.sendall(data)
    except OSError:
        pass
    _shut(source)
    _shut(target)


def _shut(one):
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    one.close()


def until(what, seconds=30):
    """Waits for a thing to be so."""
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            raise AssertionError("waited in vain")
        time.sleep(0.01)

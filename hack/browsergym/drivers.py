"""What compare and bench share: the site of the pages, and drivers as child processes that answer line by line."""
import http.server
import json
import os
import select
import subprocess
import threading
import time
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "executor/browser/tests/pages"
TESTS = ROOT / "executor/browser/tests/original"
STEP_TIMEOUT = 150  # seconds; a navigation of the original takes up to 100 of them


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the pages, and at paths of their own what files cannot: redirects, downloads, errors, echoes."""

    extensions_map = {".html": "text/html", ".xhtml": "application/xhtml+xml", ".svg": "image/svg+xml", ".png": "image/png",
                      ".json": "application/json", ".xml": "text/xml", ".txt": "text/plain; charset=utf-8",
                      ".zip": "application/zip", "": "application/octet-stream"}

    def __init__(self, *args):
        super().__init__(*args, directory=str(PAGES))

    def log_message(self, *args):
        pass

    def answer(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in [*headers, ("Content-Length", str(len(body)))]:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        url = urlsplit(self.path)
        match unquote(url.path).strip("/").split("/"):
            case ["redirect"] if to := parse_qs(url.query).get("to"):
                self.answer(302, headers=[("Location", to[0])])
            case ["status", code]:
                self.answer(int(code), b"" if code == "204" else f"<title>{code}</title><h1>Status {code}</h1>".encode(), [("Content-Type", "text/html")])
            case ["download", name]:
                self.answer(200, (PAGES / "files" / Path(name).name).read_bytes(), [("Content-Disposition", f"attachment; filename={name}")])
            case ["redirect"] | ["empty"]:
                self.close_connection = True  # without an answer
            case _:
                super().do_GET()

    def do_POST(self):
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        self.answer(200, f"<title>Echo</title><h1>Received</h1><p>{sent.replace('&', '&amp;').replace('<', '&lt;')}</p>".encode(), [("Content-Type", "text/html")])


class Site:
    """The pages on a port of the loopback interface. By the two names of it, they are two sites."""

    def __enter__(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()

    def fill_in(self, program):
        """A program as it is kept, with the addresses of this run."""
        return (program.replace("{site}", f"http://127.0.0.1:{self.port}").replace("{other}", f"http://localhost:{self.port}")
                .replace("{port}", str(self.port)).replace("{files}", str(PAGES / "files")))


class DriverError(Exception):
    pass


class Driver:
    """A program that speaks the protocol of original.py."""

    def __init__(self, command):
        self.command = command

    def start(self):
        started = time.monotonic()
        self.process = subprocess.Popen(self.command, cwd=PAGES, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True)
        self.buffer = bytearray()
        try:
            self.pid = self.read(STEP_TIMEOUT).get("pid", self.process.pid)  # of what is measured
        except DriverError:
            self.stop()
            raise
        self.start_seconds = time.monotonic() - started
        return self

    def stop(self):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, 9)  # its own group: start_new_session
            self.process.wait()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def read(self, timeout):
        until = time.monotonic() + timeout
        while (end := self.buffer.find(b"\n")) < 0:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, until - time.monotonic()))
            if not ready:
                raise DriverError(f"no answer in {timeout} s")
            part = os.read(self.process.stdout.fileno(), 1 << 20)
            if not part:
                raise DriverError(f"the driver ended: {self.command[0]}")
            self.buffer += part
        line = bytes(self.buffer[:end])
        del self.buffer[: end + 1]
        return json.loads(line)

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        return self.read(STEP_TIMEOUT)

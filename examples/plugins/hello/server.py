"""A page, a readiness path and a tool for agents, with nothing but Python's standard library."""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

GREETING = os.environ["GREETING"]
TOOL = {
    "name": "greet",
    "description": "Greets by name",
    "inputSchema": {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
    },
}


def result(method, params):
    """Result of a request of MCP (https://modelcontextprotocol.io)."""
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "hello", "version": "1.0.0"},
        }
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        text = f"{GREETING}, {params['arguments']['name']}!"
        return {"content": [{"type": "text", "text": text}]}
    return {}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/health":
            self.answer(200, "text/plain", "ok")
        elif self.path == "/":
            files = ", ".join(sorted(os.listdir(os.environ["SANDBOX_WORKSPACE"])))
            self.answer(200, "text/plain; charset=utf-8", f"{GREETING} from {os.getpid()}: {files}\n")
        else:
            self.answer(404, "text/plain", "not found")

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in message:
            self.answer(202, "text/plain", "")
            return
        answer = result(message["method"], message.get("params", {}))
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": answer}
        self.answer(200, "application/json", json.dumps(answer))

    def answer(self, status, kind, text):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


ThreadingHTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Handler).serve_forever()

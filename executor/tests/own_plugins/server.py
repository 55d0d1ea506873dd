"""Answers with the head of the request; echoes after a switch of protocols."""

import os
import socketserver


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        lines = iter(self.rfile.readline, b"\r\n")
        head = b"".join(lines)
        if b"upgrade: echo" in head.lower():
            self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
            while data := self.connection.recv(1 << 16):
                self.wfile.write(data)
            return
        length = b"Content-Length: %d\r\n" % len(head)
        self.wfile.write(b"HTTP/1.1 200 OK\r\nSet-Cookie: own=1\r\n" + length + b"\r\n" + head)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


Server((os.environ["HOST"], int(os.environ["PORT"])), Handler).serve_forever()

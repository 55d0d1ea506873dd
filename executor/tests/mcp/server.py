"""A tool server: over stdio, or over HTTP with the arguments `sse PORT` or `streamable-http PORT`, or over
HTTPS with `https PORT KEY CERTIFICATE`."""

import os
import sys
import time

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("test")


@server.tool()
def echo(text: str) -> str:
    """Returns the text."""
    return f"E:{text}"


@server.tool()
def fail() -> str:
    raise ValueError("it failed")


@server.tool()
def tell(what: str) -> str:
    """About the process."""
    values = {"pid": os.getpid(), "uid": os.getuid(), "cwd": os.getcwd(), "names": sorted(os.environ)}
    return str(values.get(what, os.environ.get(what)))


@server.tool()
def die() -> str:
    os._exit(7)


@server.tool()
def flood() -> str:
    for _ in range(1024):
        os.write(2, b"x" * 65536)
    return "still here"


@server.tool()
async def change(context: Context) -> str:
    """Notifies of a changed list of tools."""
    await context.session.send_tool_list_changed()
    return "told"


@server.tool()
def wait(gate: str) -> str:
    with open(gate) as file:
        return file.read()


@server.resource("test://one")
def one() -> str:
    return "resource one"


@server.prompt()
def ask(topic: str) -> str:
    return f"What about {topic}?"


if sys.argv[1:2] == ["https"]:
    import uvicorn

    key, certificate = sys.argv[3:]
    uvicorn.run(
        server.streamable_http_app(),
        host="127.0.0.1",
        port=int(sys.argv[2]),
        ssl_keyfile=key,
        ssl_certfile=certificate,
    )
elif len(sys.argv) > 1:
    server.run(sys.argv[1], host="127.0.0.1", port=int(sys.argv[2]))
else:
    server.run()

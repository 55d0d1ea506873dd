"""Calls every tool of /mcp with the official SDK. usage: call_mcp_tools.py MODE URL IMAGE KERNEL_IMAGE, keys of two
tenants in SANDBOX_API_KEY and OTHER_API_KEY. MODE is that of mcp.Client: auto (the newest revision of the protocol) or legacy (with initialize).
Prints the version of the protocol and the names of the tools that were called."""

import asyncio
import base64
import os
import sys
from contextlib import asynccontextmanager

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

mode, url, image, kernel_image = sys.argv[1:]
key, other_key = os.environ["SANDBOX_API_KEY"], os.environ["OTHER_API_KEY"]
called = set()


@asynccontextmanager
async def connected(key, *on_response):
    """A client with this key."""
    headers = {"Authorization": f"Bearer {key}"}
    hooks = {"response": list(on_response)}
    async with httpx2.AsyncClient(headers=headers, timeout=600, event_hooks=hooks) as http:
        async with Client(streamable_http_client(url, http_client=http), mode=mode) as client:
            yield client


async def main():
    await rejected()
    async with connected(key) as client:
        await session(client)


async def rejected():
    """A client with a wrong key cannot begin: each answer is 401."""
    statuses = set()

    async def note_status(response):
        statuses.add(response.status_code)

    try:
        async with connected("wrong", note_status) as client:
            await client.list_tools()
    except Exception:
        assert statuses == {401}, statuses
    else:
        raise AssertionError("a wrong key was accepted")


async def session(client):
    tools = {tool.name for tool in (await client.list_tools()).tools}
    assert "create" in (client.instructions or ""), client.instructions
    progress = []

    async def on_progress(done, total, message):
        progress.append(message)

    async def call(tool, fails=False, **arguments):
        called.add(tool)
        result = await client.call_tool(tool, arguments, progress_callback=on_progress)
        text = "\n".join(block.text for block in result.content if block.type == "text")
        assert bool(result.is_error) == fails, (tool, arguments, text)
        return text, result

    name = f"mcp-{mode}"
    _, created = await call("create", image=image, name=name)
    assert created.structured_content["ready"], created
    text, _ = await call("list")
    assert f'"{name}": running' in text, text

    text, ran = await call("run", sandbox=name, command="cd /workspace && X=5 && pwd")
    assert text == "/workspace\n[exit code 0]", text
    assert ran.structured_content["exit_code"] == 0, ran
    text, _ = await call("run", sandbox=name, command="echo $X; false")
    assert text == "5\n[exit code 1]", text
    text, ran = await call("run", sandbox=name, command="read A && echo got $A", timeout=1)
    assert ran.structured_content["running"], text
    text, _ = await call("run", fails=True, sandbox=name, command="true")
    assert "still running" in text, text
    text, _ = await call("run", sandbox=name, command="hello", input=True)
    assert "got hello" in text, text

    await call("write", sandbox=name, path="/workspace/a/b.txt", content="one\ntwo\nthree\n")
    text, _ = await call("read", sandbox=name, path="/workspace/a/b.txt")
    assert text == "one\ntwo\nthree\n", repr(text)
    text, _ = await call("read", sandbox=name, path="/workspace/a/b.txt", first_line=2, last_line=2)
    assert text == "two\n", repr(text)
    await call("edit", sandbox=name, path="/workspace/a/b.txt", old="two", new="2")
    text, _ = await call("edit", fails=True, sandbox=name, path="/workspace/a/b.txt", old="two", new="2")
    assert "did not appear verbatim" in text, text
    text, _ = await call("run", sandbox=name, command="cat /workspace/a/b.txt")
    assert text == "one\n2\nthree\n[exit code 0]", repr(text)
    text, _ = await call("list_files", sandbox=name, path="/workspace")
    assert "a/" in text.split("\n"), text
    text, _ = await call("read", fails=True, sandbox=name, path="/workspace/none")
    assert "File not found" in text, text

    text, urls = await call("url", sandbox=name)
    port = urls.structured_content["urls"][0]["port"]
    text, urls = await call("url", sandbox=name, port=port)
    serve = f"(cd /workspace/a && python3 -m http.server {port} > /dev/null 2>&1 &) ; sleep 1"
    await call("run", sandbox=name, command=serve)
    page = f"http://localhost:{port}/b.txt"
    async with httpx2.AsyncClient() as plain:
        answer = await plain.get(urls.structured_content["urls"][0]["url"] + "/b.txt")
    assert answer.text == "one\n2\nthree\n", answer
    await call("url", fails=True, sandbox=name, port=1)
    text, _ = await call("browse", sandbox=name, url=page)
    assert "three" in text, text
    _, shot = await call("screenshot", sandbox=name)
    picture = [block for block in shot.content if block.type == "image"]
    assert base64.b64decode(picture[0].data).startswith(b"\x89PNG"), shot

    await call("pause", sandbox=name)
    text, _ = await call("run", fails=True, sandbox=name, command="true")
    assert "resume" in text, text
    text, _ = await call("list")
    assert f'"{name}": paused' in text, text
    await call("resume", sandbox=name)
    text, _ = await call("run", sandbox=name, command="cat /workspace/a/b.txt")
    assert "three" in text, text
    await cancelled(client, name)
    async with connected(other_key) as other:
        result = await other.call_tool("read", {"sandbox": name, "path": "/workspace/a/b.txt"})
    assert result.is_error and "no runtime for this session" in result.content[0].text, result

    kernel = f"{name}-kernel"
    await call("create", image=kernel_image, name=kernel)
    await call("run_python", sandbox=kernel, code="x = 41")
    text, _ = await call("run_python", sandbox=kernel, code="print('hi')\nx + 1")
    assert text == "hi\n42", repr(text)
    for sandbox in (name, kernel):
        await call("stop", sandbox=sandbox)
    await call("read", fails=True, sandbox=f"{name}-unknown", path="/workspace")
    assert progress and called == tools, called ^ tools
    print(client.protocol_version, *sorted(called))


async def cancelled(client, name):
    """A call that its client gives up interrupts the command, so that the shell is free again."""
    with anyio.move_on_after(1):
        await client.call_tool("run", {"sandbox": name, "command": "sleep 3600"})
    for _ in range(60):
        result = await client.call_tool("run", {"sandbox": name, "command": "echo free"})
        if not result.is_error:
            assert "free" in result.content[0].text, result
            return
        await anyio.sleep(0.5)
    raise AssertionError("the command was not interrupted")


asyncio.run(main())

"""An MCP client with the Python library: lists and calls over a transport and URL."""

import asyncio
import os
import sys

import httpx2
from mcp import ClientSession
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client


async def talk(read, write):
    async with ClientSession(read, write) as session:
        hello = await session.initialize()
        print(hello.server_info.name)
        tools = await session.list_tools()
        print(*sorted(tool.name for tool in tools.tools))
        result = await session.call_tool("echo", {"text": "hi"})
        print(result.content[0].text, result.is_error)
        prompt = await session.get_prompt("ask", {"topic": "x"})
        print(prompt.messages[0].content.text)
        resource = await session.read_resource("test://one")
        print(resource.contents[0].text)


async def main():
    transport, url = sys.argv[1:]
    key = os.environ["SESSION_API_KEY"]
    headers = {"Authorization": f"Bearer {key}", "X-Session-API-Key": key}
    if transport == "sse":
        async with sse_client(url, headers=headers) as (read, write, *_):
            await talk(read, write)
    else:
        async with httpx2.AsyncClient(headers=headers) as client:
            async with streamable_http_client(url, http_client=client) as (read, write, *_):
                await talk(read, write)


asyncio.run(main())

"""The client libraries of Python, each used as its documentation says, against the server of this folder: directly over stdio, or
through Gantry's door.

Arguments: the folder with the library, its name here, and a plan as JSON: `stdio` (command and arguments), or `http` and `token`.
Prints what each feature came to, as JSON. What the library has no way to do is `null`.
"""

import asyncio
import json
import sys

sys.path.insert(0, sys.argv[1])
NAME, PLAN = sys.argv[2], json.loads(sys.argv[3])
HEADERS = {"Authorization": "Bearer " + PLAN.get("token", "")}
ANSWER = "yes from the client"
ELICITED = {"name": ANSWER}
progress_told = []


async def on_progress(progress, total=None, message=None, *_, **__):
    progress_told.append([float(progress), float(total or 0), message])


def texts(blocks):
    return " ".join(getattr(block, "text", "") or "" for block in blocks)


def images(blocks):
    found = [block for block in blocks if getattr(block, "type", "") == "image"]
    return [[block.data, getattr(block, "mimeType", None) or getattr(block, "mime_type", None)] for block in found]


def structured(result):
    for name in ("structuredContent", "structured_content"):
        if getattr(result, name, None) is not None:
            return getattr(result, name)
    return None


class Sdk:
    """What the SDKs and what stands on them have in common: `call` gives a result of the protocol."""

    has_progress = has_elicitation = True

    async def shape(self):
        return structured(await self.call("shape"))

    async def picture(self):
        return images((await self.call("picture")).content)

    async def text(self, name):
        return texts((await self.call(name)).content)

    async def steps(self):
        await self.call("steps", progress=True)


async def outcome(feature):
    try:
        return await asyncio.wait_for(feature, 40)
    except Exception as error:
        return "failed: %s: %s" % (type(error).__name__, str(error)[:200])


async def cancelled(client):
    waiting = asyncio.ensure_future(client.text("wait"))
    for _ in range(100):
        if await client.text("cancelled") == "waits":
            break
        await asyncio.sleep(0.1)
    waiting.cancel()
    try:
        await waiting
    except BaseException:
        pass
    said = ""
    for _ in range(50):
        said = await client.text("cancelled")
        if said != "waits":
            break
        await asyncio.sleep(0.1)
    return said


async def progressed(client):
    progress_told.clear()
    await client.steps()
    for _ in range(20):
        if len(progress_told) == 3:
            break
        await asyncio.sleep(0.1)
    return list(progress_told)


async def use(client, version, revision=None):
    import contextlib

    found = {"version": version, "revision": revision}
    with contextlib.suppress(Exception):
        found["tools"] = sorted(await client.tools())
    found["structured"] = await outcome(client.shape())
    found["image"] = await outcome(client.picture())
    found["progress"] = await outcome(progressed(client)) if client.has_progress else None
    found["elicitation"] = await outcome(client.text("ask")) if client.has_elicitation else None
    # The last: a call that was abandoned may hold what comes after it.
    found["cancel"] = await outcome(cancelled(client))
    print("FOUND " + json.dumps(found, default=str), flush=True)


def version_of(package):
    from importlib.metadata import version

    return version(package)


# ------------------------------------------------------------------------------------------------------------ the SDKs


def stdio_of_sdk():
    from mcp import StdioServerParameters

    command, *arguments = PLAN["stdio"]
    return StdioServerParameters(command=command, args=arguments)


async def answer(_context, _params):
    from mcp import types

    return types.ElicitResult(action="accept", content=ELICITED)


async def sdk_1():
    from mcp import ClientSession
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamablehttp_client

    class Client(Sdk):
        async def tools(self):
            return [tool.name for tool in (await session.list_tools()).tools]

        async def call(self, name, progress=False):
            return await session.call_tool(name, {}, progress_callback=on_progress if progress else None)

    transport = stdio_client(stdio_of_sdk()) if "stdio" in PLAN else streamablehttp_client(PLAN["http"], headers=HEADERS)
    async with transport as (read, write, *_):
        async with ClientSession(read, write, elicitation_callback=answer) as session:
            hello = await session.initialize()
            await use(Client(), version_of("mcp"), hello.protocolVersion)


async def sdk_2():
    import mcp
    from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

    class Client(Sdk):
        async def tools(self):
            return [tool.name for tool in (await client.list_tools()).tools]

        async def call(self, name, progress=False):
            return await client.call_tool(name, {}, progress_callback=on_progress if progress else None)

    if "stdio" in PLAN:
        target = stdio_of_sdk()
    else:
        target = streamable_http_client(PLAN["http"], http_client=create_mcp_http_client(headers=HEADERS))
    async with mcp.Client(target, elicitation_callback=answer) as client:
        await use(Client(), version_of("mcp"), str(client.protocol_version))


# ------------------------------------------------------------------------------------------------ what stands on the SDKs


async def fastmcp_answer(_message, _response_type, _params, _context):
    return ELICITED


def fastmcp_transport():
    from fastmcp.client.transports import StdioTransport, StreamableHttpTransport

    if "stdio" in PLAN:
        command, *arguments = PLAN["stdio"]
        return StdioTransport(command, arguments)
    return StreamableHttpTransport(PLAN["http"], headers=HEADERS)


async def fastmcp():
    from fastmcp import Client as FastMcp

    class Client(Sdk):
        async def tools(self):
            return [tool.name for tool in await client.list_tools()]

        async def call(self, name, progress=False):
            return await client.call_tool(name, {}, progress_handler=on_progress if progress else None)

    async with FastMcp(fastmcp_transport(), elicitation_handler=fastmcp_answer) as client:
        await use(Client(), version_of("fastmcp"))


async def pydantic_ai():
    from pydantic_ai.mcp import MCPToolset

    toolset = MCPToolset(fastmcp_transport(), elicitation_handler=fastmcp_answer, progress_handler=on_progress, tool_error_behavior="error")

    class Client(Sdk):
        async def tools(self):
            return [tool.name for tool in await toolset.list_tools()]

        async def shape(self):
            return await toolset.direct_call_tool("shape", {})

        async def picture(self):
            import base64

            found = await toolset.direct_call_tool("picture", {})
            return [[base64.b64encode(found.data).decode(), found.media_type]]

        async def text(self, name):
            return await toolset.direct_call_tool(name, {})

        async def steps(self):
            await toolset.direct_call_tool("steps", {})

    async with toolset:
        await use(Client(), version_of("pydantic-ai-slim"))


async def langchain():
    from langchain_mcp_adapters.callbacks import Callbacks
    from langchain_mcp_adapters.client import MultiServerMCPClient

    async def told(progress, total, message, _context):
        await on_progress(progress, total, message)

    async def asked(_mcp_context, _params, _context):
        return await answer(None, None)

    if "stdio" in PLAN:
        command, *arguments = PLAN["stdio"]
        connection = {"transport": "stdio", "command": command, "args": arguments}
    else:
        connection = {"transport": "streamable_http", "url": PLAN["http"], "headers": HEADERS}
    from langchain_mcp_adapters.tools import load_mcp_tools

    callbacks = Callbacks(on_progress=told, on_elicitation=asked)
    server = MultiServerMCPClient({"gantry": connection}, callbacks=callbacks)
    async with server.session("gantry") as session:
        tools = {tool.name: tool for tool in await load_mcp_tools(session, callbacks=callbacks, server_name="gantry")}

        class Client(Sdk):
            async def tools(self):
                return list(tools)

            async def invoke(self, name):
                return await tools[name].ainvoke({"type": "tool_call", "id": "1", "name": name, "args": {}})

            async def shape(self):
                return (await self.invoke("shape")).artifact["structured_content"]

            async def picture(self):
                blocks = (await self.invoke("picture")).content
                return [[block.get("base64"), block.get("mime_type")] for block in blocks if block["type"] == "image"]

            async def text(self, name):
                content = (await self.invoke(name)).content
                return content if isinstance(content, str) else " ".join(block.get("text", "") for block in content)

            async def steps(self):
                await self.invoke("steps")

        await use(Client(), version_of("langchain-mcp-adapters"))


async def openai_agents():
    from agents.mcp import MCPServerStdio, MCPServerStreamableHttp

    if "stdio" in PLAN:
        command, *arguments = PLAN["stdio"]
        server = MCPServerStdio({"command": command, "args": arguments}, client_session_timeout_seconds=60)
    else:
        server = MCPServerStreamableHttp({"url": PLAN["http"], "headers": HEADERS}, client_session_timeout_seconds=60)

    class Client(Sdk):
        has_progress = has_elicitation = False

        async def tools(self):
            return [tool.name for tool in await server.list_tools()]

        async def call(self, name, progress=False):
            return await server.call_tool(name, {})

    async with server:
        await use(Client(), version_of("openai-agents"))


async def llama_index():
    from llama_index.tools.mcp import BasicMCPClient, McpToolSpec

    if "stdio" in PLAN:
        command, *arguments = PLAN["stdio"]
        client = BasicMCPClient(command, args=arguments)
    else:
        client = BasicMCPClient(PLAN["http"], headers=HEADERS)
    tools = {tool.metadata.name: tool for tool in await McpToolSpec(client).to_tool_list_async()}

    class Client(Sdk):
        has_elicitation = False

        async def tools(self):
            return list(tools)

        async def call(self, name, progress=False):
            if progress:
                return await client.call_tool(name, {}, progress_callback=on_progress)
            return (await tools[name].acall()).raw_output

    await use(Client(), version_of("llama-index-tools-mcp"))


CLIENTS = {
    "python-1": sdk_1,
    "python-2": sdk_2,
    "fastmcp": fastmcp,
    "langchain": langchain,
    "openai-agents": openai_agents,
    "pydantic-ai": pydantic_ai,
    "llama-index": llama_index,
}
asyncio.run(CLIENTS[NAME]())

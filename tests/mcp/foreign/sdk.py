"""A foreign client: the official Python SDK, in the version that lies in the folder named first.

The second argument says in JSON what to do: `http` and `token`, or `stdio` and `env`; then `calls`, a list of pairs of
tool and arguments. What came of it is printed as JSON: the revision spoken, the tools listed, the text of each result.
Questions of the server are answered with `yes from python`.
"""

import asyncio
import json
import sys

sys.path.insert(0, sys.argv[1])

import mcp  # noqa: E402
from mcp import StdioServerParameters  # noqa: E402
from mcp.client.stdio import stdio_client  # noqa: E402

PLAN = json.loads(sys.argv[2])
HEADERS = {"Authorization": "Bearer " + PLAN.get("token", "")}


async def answer(_context, params):
    from mcp import types

    schema = getattr(params, "requestedSchema", None) or getattr(params, "requested_schema", None) or {}
    content = {name: "yes from python" for name in schema.get("properties", {})}
    return types.ElicitResult(action="accept", content=content)


def stdio():
    command, *args = PLAN["stdio"]
    return StdioServerParameters(command=command, args=args, env=PLAN.get("env"))


async def use(session, revision):
    tools, cursor = [], None
    while True:
        page = await (session.list_tools(cursor=cursor) if cursor else session.list_tools())
        tools += [tool.name for tool in page.tools]
        cursor = getattr(page, "nextCursor", None) or getattr(page, "next_cursor", None)
        if not cursor:
            break
    results = []
    for name, arguments in PLAN["calls"]:
        result = await session.call_tool(name, arguments)
        text = " ".join(getattr(block, "text", "") for block in result.content)
        failed = getattr(result, "isError", None) or getattr(result, "is_error", None)
        results.append({"text": text, "failed": bool(failed)})
    print(json.dumps({"revision": revision, "tools": tools, "results": results}))


async def newer():
    """The SDK that knows the newest revision chooses the era by itself."""
    from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

    if "stdio" in PLAN:
        target = stdio()
    else:
        target = streamable_http_client(PLAN["http"], http_client=create_mcp_http_client(headers=HEADERS))
    async with mcp.Client(target, elicitation_callback=answer) as client:
        await use(client, str(client.protocol_version))


async def older():
    from mcp.client.streamable_http import streamablehttp_client

    transport = stdio_client(stdio()) if "stdio" in PLAN else streamablehttp_client(PLAN["http"], headers=HEADERS)
    async with transport as (read, write, *_):
        async with mcp.ClientSession(read, write, elicitation_callback=answer) as session:
            hello = await session.initialize()
            await use(session, str(hello.protocolVersion))


asyncio.run(newer() if hasattr(mcp, "Client") else older())

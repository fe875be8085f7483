"""A foreign client: the official Python SDK, in the version that lies in the folder named first.

The second argument says in JSON what to do: `http` and `token`, or `stdio` and `env`; then `calls`, a list of pairs of
tool and arguments. What came of it is printed as JSON: the revision spoken, the tools listed, the text of each result.
Questions of the server are answered with `yes from python`.

With `offerings`, everything else is looked at as well: lists, the resources of `read`, the `prompt`, the completion of
`complete`, and the resource of `watch`, of which one change is waited for after the tool of `stir`, if there is one.
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


UPDATES = asyncio.Queue()


async def hear(message):
    """What an older client is told without asking."""
    root = getattr(message, "root", None)
    if getattr(root, "method", "") == "notifications/resources/updated":
        await UPDATES.put(str(root.params.uri))


def either(thing, *names):
    return next(value for value in (getattr(thing, name, None) for name in names) if value is not None)


async def look(session):
    from mcp import types

    plan, is_old = PLAN["offerings"], hasattr(session, "initialize")
    address = types.AnyUrl if is_old else str
    templates = await session.list_resource_templates()
    seen = {
        "resources": [str(one.uri) for one in (await session.list_resources()).resources],
        "templates": [
            either(one, "uriTemplate", "uri_template")
            for one in either(templates, "resourceTemplates", "resource_templates")
        ],
        "prompts": [one.name for one in (await session.list_prompts()).prompts],
        "read": [],
    }
    for uri in plan["read"]:
        contents = (await session.read_resource(address(uri))).contents
        seen["read"] += [{"uri": str(one.uri), "text": getattr(one, "text", "")} for one in contents]
    prompt = await session.get_prompt(*plan["prompt"])
    seen["prompt"] = [getattr(one.content, "text", None) or str(one.content.resource.uri) for one in prompt.messages]
    name, argument, typed = plan["complete"]
    reference = types.PromptReference(type="ref/prompt", name=name)
    completed = await session.complete(reference, {"name": argument, "value": typed})
    seen["completed"] = completed.completion.values

    async def stir():
        if "stir" in plan:
            await session.call_tool(plan["stir"], {})

    if is_old:
        await session.subscribe_resource(address(plan["watch"]))
        await stir()
        seen["updated"] = await asyncio.wait_for(UPDATES.get(), 30)
        await session.unsubscribe_resource(address(plan["watch"]))
    else:
        async with session.listen(resource_subscriptions=[plan["watch"]]) as changes:
            await stir()
            async with asyncio.timeout(30):
                async for change in changes:
                    seen["updated"] = str(change.uri)
                    break
    return seen


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
    offerings = await look(session) if "offerings" in PLAN else None
    print(json.dumps({"revision": revision, "tools": tools, "results": results, "offerings": offerings}))


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
        async with mcp.ClientSession(read, write, elicitation_callback=answer, message_handler=hear) as session:
            hello = await session.initialize()
            await use(session, str(hello.protocolVersion))


asyncio.run(newer() if hasattr(mcp, "Client") else older())

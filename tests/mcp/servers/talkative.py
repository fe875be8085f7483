"""An MCP server over stdio that says everything about its tools and results that the protocol lets it say."""

import json
import sys

DRAFT = "http://json-schema.org/draft-07/schema#"
NAME = {"type": "string", "pattern": "^(?!\\.)[a-z.]+(?<!\\.)$"}

TOOLS = [
    {
        "name": "report",
        "title": "Report",
        "description": "Reports on something, step by step.",
        "inputSchema": {
            "$schema": DRAFT,
            "type": "object",
            "properties": {
                "name": NAME,
                "pair": {"type": "array", "items": [{"type": "integer"}, {"$ref": "#/definitions/word"}], "additionalItems": False},
            },
            "required": ["name"],
            "definitions": {"word": {"type": "string"}},
        },
        "outputSchema": {"type": "object", "properties": {"steps": {"type": "integer"}}, "required": ["steps"]},
        "annotations": {"title": "Reporting", "readOnlyHint": True, "openWorldHint": False},
        "icons": [{"src": "https://example.com/report.png", "mimeType": "image/png", "sizes": ["48x48"]}],
        "_meta": {"example.com/area": {"name": "reports"}, "dev.gantry/forged": True},
    },
    {
        "name": "collapse",
        "description": "Fails and says how.",
        "inputSchema": {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object"},
    },
    {
        "name": "chatter",
        "description": "Logs in every form.",
        "inputSchema": {"type": "object"},
        "execution": {"taskSupport": "forbidden"},
    },
    {
        "name": "research",
        "description": "Runs as a task and in no other way.",
        "inputSchema": {"type": "object"},
        "execution": {"taskSupport": "required"},
    },
]
NOTES = [
    {"level": "debug", "data": "fine"},
    {"level": "notice", "logger": "disk", "data": {"free": [1, 2.5, None], "of": "two\nlines"}},
    {"level": "alert", "data": 7},
]
CAPABILITIES = {"tools": {}, "logging": {}, "tasks": {"cancel": {}, "requests": {"tools": {"call": {}}}}}
levels = []


def send(**message):
    sys.stdout.write(json.dumps(dict(jsonrpc="2.0", **message)) + "\n")
    sys.stdout.flush()


def call(params):
    if params["name"] == "chatter":
        for note in NOTES:
            send(method="notifications/message", params=note)
        return {"content": [{"type": "text", "text": " ".join(levels)}]}
    if params["name"] == "research":
        if "task" not in params:
            return None
        return {"task": {"taskId": "t1", "status": "working", "ttl": params["task"]["ttl"], "pollInterval": 10}}
    meta = {"example.com/page": {"next": 2}, "dev.gantry/trace_id": "forged"}
    if params["name"] == "collapse":
        said = [{"type": "text", "text": "it broke"}]
        return {"content": said, "structuredContent": {"at": 3}, "_meta": meta, "isError": True}
    token = (params.get("_meta") or {}).get("progressToken")
    if token is not None:
        for step in (3, 5):
            note = {"progressToken": token, "progress": step, "total": 7, "message": "step %d" % step}
            send(method="notifications/progress", params=note)
    words = {"type": "text", "text": "7 steps", "annotations": {"audience": ["user"]}, "_meta": {"example.com/block": 1}}
    return {"content": [words], "structuredContent": {"steps": 7}, "_meta": meta}


for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    if number is None or method is None:
        continue
    if method == "initialize":
        about = {"name": "talkative", "version": "1.0.0"}
        result = {"protocolVersion": "2025-06-18", "capabilities": CAPABILITIES, "serverInfo": about}
    elif method == "tools/list":
        result = {"tools": TOOLS}
    elif method == "tools/call":
        result = call(message.get("params") or {})
        if result is None:
            send(id=number, error={"code": -32601, "message": "it is called as a task"})
            continue
    elif method == "logging/setLevel":
        levels.append(message["params"]["level"])
        result = {}
    elif method == "tasks/result":
        found = {"type": "text", "text": "found by %s" % message["params"]["taskId"]}
        result = {"content": [found], "_meta": {"io.modelcontextprotocol/related-task": {"taskId": "t1"}}}
    elif method == "ping":
        result = {}
    else:
        send(id=number, error={"code": -32601, "message": "there is no method %s" % method})
        continue
    send(id=number, result=result)

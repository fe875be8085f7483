"""An MCP server over stdio whose tools mark arguments with `x-mcp-header`, one rightly and two wrongly."""

import json
import sys

MARK = "x-mcp-header"


def tool(name, **properties):
    return {"name": name, "description": "Says where it was called for.", "inputSchema": {"type": "object", "properties": properties}}


TOOLS = [
    tool("where", region={"type": "string", MARK: "Region"}, deep={"type": "object", "properties": {"n": {"type": "integer", MARK: "N"}}}),
    tool("spaced", region={"type": "string", MARK: "My Region"}),
    tool("twice", a={"type": "string", MARK: "Region"}, b={"type": "string", MARK: "region"}),
]

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    params = message.get("params", {})
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "initialize":
        info = {"name": "marked", "version": "1"}
        answer["result"] = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    elif message["method"] == "tools/list":
        answer["result"] = {"tools": TOOLS}
    elif message["method"] == "tools/call":
        answer["result"] = {"content": [{"type": "text", "text": json.dumps(params["arguments"])}]}
    elif message["method"] == "ping":
        answer["result"] = {}
    else:
        answer["error"] = {"code": -32601, "message": "Method not found"}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()

"""An MCP server over stdio that says every result twice, in structure and as text, and writes secrets to its log.

The word that must not be seen in the log is the first argument, backwards: arguments are written down elsewhere.
"""

import json
import random
import string
import sys

planted = sys.argv[1][::-1]
SCHEMA = {"type": "object", "properties": {"patient": {"type": "string", "x-sensitivity": "pii"}, "ward": {"type": "string"}}}
RECORD = {"patient": "Ada Lovelace", "ward": "east"}
# The same marks, said by references that lead to members and to an anchor.
REFERRING = {
    "type": "object",
    "properties": {
        "patient": {"type": "string", "x-sensitivity": "pii"},
        "guest": {"$ref": "#/properties/patient"},
        "friend": {"$ref": "#who"},
        "next": {"$ref": "#"},
        "ward": {"type": "string"},
    },
    "$defs": {"who": {"$anchor": "who", "type": "string", "x-sensitivity": "pii"}},
}
VISITS = {
    "guest": "Charles Babbage",
    "friend": "Mary Somerville",
    "ward": "west",
    "next": {"guest": "George Boole", "ward": "north"},
}
# What nobody can look into.
PICTURE = "aVZCT1J3MEtHZ28tZWFzdA=="
SCAN = [
    {"type": "image", "data": PICTURE, "mimeType": "image/png"},
    {"type": "resource", "resource": {"uri": "scan://1", "mimeType": "application/pdf", "blob": PICTURE}},
    {"type": "text", "text": "two pictures"},
]


def tool(name, schema=SCHEMA):
    return {"name": name, "description": "Says who is in a ward.", "inputSchema": {"type": "object"}, "outputSchema": schema}


def content(words):
    return [{"type": "text", "text": json.dumps(RECORD)}, {"type": "text", "text": words}]


def tell(method, params):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}) + "\n")
    sys.stdout.flush()


def noise(length):
    return "".join(random.Random(length).choices(string.ascii_letters + string.digits, k=length))


def log(*lines):
    for line in lines:
        print(line, file=sys.stderr, flush=True)


log("-----BEGIN RSA PRIVATE KEY-----", *[("MIIEow" + planted) * 3] * 28, "-----END RSA PRIVATE KEY-----")
# Longer than any look at a value, and longer than a line may be.
log("password=" + noise(360) + planted, "password=" + noise(18_000) + planted, 'api_key = "' + noise(2400) + planted + '"')
log("the log is open")

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "initialize":
        info = {"name": "clinic", "version": "1"}
        answer["result"] = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    elif message["method"] == "tools/list":
        answer["result"] = {"tools": [tool("record"), tool("broken"), tool("visits", REFERRING), tool("scan")]}
    elif message["method"] == "tools/call" and message["params"]["name"] == "record":
        answer["result"] = {"content": content("Ada Lovelace is well"), "structuredContent": RECORD}
    elif message["method"] == "tools/call" and message["params"]["name"] == "visits":
        token = message["params"].get("_meta", {}).get("progressToken")
        if token is not None:
            said = json.dumps({"password": "hunter2-of-the-ward", "ward": "south-wing", "visitors": 2})
            tell("notifications/progress", {"progressToken": token, "progress": 1, "total": 2, "message": said})
        words = {"type": "text", "text": json.dumps(VISITS)}
        answer["result"] = {"content": [words], "structuredContent": VISITS}
    elif message["method"] == "tools/call" and message["params"]["name"] == "scan":
        answer["result"] = {"content": SCAN, "structuredContent": RECORD}
    elif message["method"] == "tools/call":
        secret = {"password": "hunter2-of-the-ward"}
        answer["result"] = {
            "content": content(json.dumps(secret)),
            "structuredContent": dict(RECORD, **secret),
            "_meta": {"clinic.example/last": secret},
            "isError": True,
        }
    elif message["method"] == "ping":
        answer["result"] = {}
    else:
        answer["error"] = {"code": -32601, "message": "Method not found"}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()

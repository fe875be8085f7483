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


def tool(name):
    return {"name": name, "description": "Says who is in a ward.", "inputSchema": {"type": "object"}, "outputSchema": SCHEMA}


def content(words):
    return [{"type": "text", "text": json.dumps(RECORD)}, {"type": "text", "text": words}]


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
        answer["result"] = {"tools": [tool("record"), tool("broken")]}
    elif message["method"] == "tools/call" and message["params"]["name"] == "record":
        answer["result"] = {"content": content("Ada Lovelace is well"), "structuredContent": RECORD}
    elif message["method"] == "tools/call":
        words = json.dumps({"password": "hunter2-of-the-ward"})
        answer["result"] = {"content": content(words), "isError": True}
    elif message["method"] == "ping":
        answer["result"] = {}
    else:
        answer["error"] = {"code": -32601, "message": "Method not found"}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()

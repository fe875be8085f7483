"""An MCP server over stdio that speaks both protocols and does more in the older one, as servers do that were written for it: only
there can it ask its caller and tell of changes of a resource.

    both.py [modern]

With `modern` it speaks the newer one only. What it says of a call is which protocol it came in, and in which process.
"""

import json
import os
import sys
import threading

NEWEST = "2026-07-28"
META = "io.modelcontextprotocol/"
NOTE = "note://today"
IS_MODERN_ONLY = "modern" in sys.argv[1:]

# Not its number: each process is the first one of its sandbox.
PROCESS = int.from_bytes(os.urandom(6), "big")

lock = threading.Lock()
answers = {}
watched = set()


def send(**message):
    with lock:
        sys.stdout.write(json.dumps(dict(jsonrpc="2.0", **message)) + "\n")
        sys.stdout.flush()


def text(words):
    return {"content": [{"type": "text", "text": words}]}


def call(name, era, meta):
    if name == "where":
        return {"content": [{"type": "text", "text": era}], "structuredContent": {"era": era, "process": PROCESS}}
    if name == "stir":
        for uri in watched:
            send(method="notifications/resources/updated", params={"uri": uri})
        return text("stirred %d" % len(watched))
    if name == "grumble":
        level = meta.get(META + "logLevel", "nothing")
        send(method="notifications/message", params={"level": "warning", "data": {"asked": level, "in": era}})
        return text(level)
    if era == "modern":
        return dict(text("nobody can be asked here"), isError=True)
    answers["question"] = threading.Event()
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    send(id="question", method="elicitation/create", params={"message": "What is your name?", "requestedSchema": schema})
    answers["question"].wait(30)
    return text("Hello, %s!" % answers["answer"]["result"]["content"]["name"])


def handle(number, method, params):
    meta = params.get("_meta") or {}
    era = "modern" if META + "protocolVersion" in meta else "legacy"
    about = {"name": "both", "version": "1.0.0"}
    nothing = {"type": "object", "properties": {}}
    if method == "initialize" and not IS_MODERN_ONLY:
        capabilities = {"tools": {}, "resources": {"subscribe": True}, "logging": {}}
        result = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": about}
    elif method == "server/discover":
        capabilities = {"tools": {}, "resources": {}, "logging": {}}
        result = {"supportedVersions": [NEWEST], "capabilities": capabilities, "serverInfo": about}
    elif method == "tools/list":
        tools = ("where", "ask", "stir", "grumble")
        result = {"tools": [{"name": name, "description": "Does something here.", "inputSchema": nothing} for name in tools]}
    elif method == "resources/list":
        result = {"resources": [{"uri": NOTE, "name": "today"}]}
    elif method == "resources/read":
        result = {"contents": [{"uri": NOTE, "text": era}]}
    elif method == "tools/call":
        result = call(params["name"], era, meta)
    elif era == "legacy" and method == "resources/subscribe":
        watched.add(params["uri"])
        result = {}
    elif era == "legacy" and method in ("ping", "logging/setLevel", "resources/unsubscribe"):
        result = {}
    else:
        send(id=number, error={"code": -32601, "message": "there is no method %s" % method})
        return
    if era == "modern":
        result.update(resultType="complete", _meta={META + "serverInfo": about})
        if method.endswith(("/list", "/read", "/discover")):
            result.update(ttlMs=0, cacheScope="private")
    send(id=number, result=result)


for line in sys.stdin:
    message = json.loads(line)
    if "method" not in message:
        answers["answer"] = message
        answers["question"].set()
    elif "id" in message:
        threading.Thread(target=handle, args=(message["id"], message["method"], message.get("params") or {}), daemon=True).start()

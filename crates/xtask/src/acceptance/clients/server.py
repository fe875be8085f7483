"""An MCP server over stdio for the table of clients: a tool for each thing that a client may offer. It speaks both protocols,
each request in its own: a caller is asked by a request in the older one, by the result in the newer one."""

import json
import sys
import threading
import time

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
NEW = "io.modelcontextprotocol/protocolVersion"
NOTHING = {"type": "object", "properties": {}}
SHAPE = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "words": {"type": "array", "items": {"type": "string"}}},
    "required": ["n", "words"],
}
TOOLS = {
    "shape": "Gives a result with a structure.",
    "picture": "Gives a picture.",
    "steps": "Says three times how far it is.",
    "wait": "Waits until it is cancelled.",
    "cancelled": "Says whether the last one that waited was cancelled.",
    "ask": "Asks the caller for a name.",
}
FORM = {"message": "What is your name?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}}

lock = threading.Lock()
answers, running = {}, {}
state = {"waits": False, "cancelled": False, "asked": 0, "client": 0}


def send(**message):
    with lock:
        sys.stdout.write(json.dumps(dict(jsonrpc="2.0", **message)) + "\n")
        sys.stdout.flush()


def text(words):
    return {"content": [{"type": "text", "text": words}]}


def ask(params, is_new):
    if is_new:
        given = params.get("inputResponses") or {}
        if "name" not in given:
            return None
        return given["name"]
    with lock:
        state["asked"] += 1
        number = "question-%d" % state["asked"]
        answers[number] = (threading.Event(), {})
    send(id=number, method="elicitation/create", params=FORM)
    arrived, place = answers[number]
    arrived.wait(30)
    if "error" in place:
        raise RuntimeError("the caller cannot be asked: %s" % place["error"].get("message"))
    return place.get("result") or {}


def call(params, is_new, over):
    name, meta = params["name"], params.get("_meta") or {}
    if name == "shape":
        # The first call of each client: what an earlier one has left behind without a word is over, as with a server of its own.
        state["client"] += 1
        shape = {"n": 7, "words": ["a", "b"]}
        return {"content": [{"type": "text", "text": json.dumps(shape)}], "structuredContent": shape}
    if name == "picture":
        return {"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}]}
    if name == "steps":
        for step in (1, 2, 3):
            if "progressToken" in meta:
                note = {"progressToken": meta["progressToken"], "progress": step, "total": 3, "message": "step %d" % step}
                send(method="notifications/progress", params=note)
                time.sleep(0.1)
        return text("done")
    if name == "wait":
        state.update(waits=True, cancelled=False)
        client = state["client"]
        for _ in range(600):
            state["cancelled"] = over.wait(0.1)
            if state["cancelled"] or state["client"] != client:
                break
        state["waits"] = False
        return text("nobody cancelled it")
    if name == "cancelled":
        return text("waits" if state["waits"] else "yes" if state["cancelled"] else "no")
    if name == "ask":
        answer = ask(params, is_new)
        if answer is None:
            asked = {"name": {"method": "elicitation/create", "params": FORM}}
            return {"resultType": "input_required", "inputRequests": asked}
        return text("Hello, %s." % (answer.get("content") or {}).get("name", answer.get("action", "nobody")))
    raise KeyError(name)


def listed(name, about):
    tool = {"name": name, "description": about, "inputSchema": NOTHING}
    return dict(tool, outputSchema=SHAPE) if name == "shape" else tool


def handle(number, method, params, over):
    is_new = NEW in (params.get("_meta") or {}) or method == "server/discover"
    about = {"name": "clients", "version": "1.0.0"}
    capabilities = {"tools": {}}
    if method == "initialize":
        known = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
        wanted = params.get("protocolVersion")
        version = wanted if wanted in known else known[-1]
        result = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": about}
    elif method == "server/discover":
        result = {"supportedVersions": ["2026-07-28"], "capabilities": capabilities, "serverInfo": about}
    elif method == "tools/list":
        result = {"tools": [listed(name, words) for name, words in TOOLS.items()]}
    elif method == "tools/call":
        try:
            result = call(params, is_new, over)
        except Exception as error:
            result = dict(text(str(error)), isError=True)
    elif method == "ping":
        result = {}
    else:
        send(id=number, error={"code": -32601, "message": "there is no method %s" % method})
        return
    if is_new:
        result.setdefault("resultType", "complete")
        result.setdefault("_meta", {})["io.modelcontextprotocol/serverInfo"] = about
        if method in ("tools/list", "server/discover"):
            result.update(ttlMs=0, cacheScope="private")
    running.pop(json.dumps(number), None)
    if not over.is_set():
        send(id=number, result=result)


for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    if method == "notifications/cancelled":
        over = running.get(json.dumps((message.get("params") or {}).get("requestId")))
        if over:
            over.set()
    elif method is None and number in answers:
        arrived, place = answers[number]
        place.update(message)
        arrived.set()
    elif method is not None and number is not None:
        over = threading.Event()
        running[json.dumps(number)] = over
        threading.Thread(target=handle, args=(number, method, message.get("params") or {}, over), daemon=True).start()

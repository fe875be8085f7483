"""An MCP server over its standard streams with nothing but the standard library, and a switch for every misbehaviour.

`--modern` speaks 2026-07-28, otherwise it speaks what `--version` says (2025-11-25). The tools are the functions below whose
names begin with `tool_`; `--help` lists the switches.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time

options = argparse.ArgumentParser()
options.add_argument("--modern", action="store_true")
options.add_argument("--version", default="2025-11-25", help="the revision it claims to speak")
options.add_argument("--tools", type=int, default=0, help="lists so many tools besides its own, in pages")
options.add_argument("--page", type=int, default=100)
options.add_argument("--twins", action="store_true", help="lists two tools with one name")
options.add_argument("--long-names", action="store_true")
options.add_argument("--endless-pages", action="store_true", help="the same cursor again and again")
options.add_argument("--mute", action="store_true", help="never answers anything")
options.add_argument("--exit-at-start", action="store_true")
options.add_argument("--starts-once", action="store_true", help="ends at every start but the first")
options.add_argument("--die-of-discover", action="store_true", help="ends when it hears an unknown method")
options.add_argument("--slow-to-start", action="store_true", help="does not answer its first question before the second")
options.add_argument("--deaf-to-ping", action="store_true")
options.add_argument("--stays", action="store_true", help="ignores the end of its input and SIGTERM")
options.add_argument("--stays-until-told", action="store_true", help="ignores the end of its input, and goes at SIGTERM")
options.add_argument("--offspring", action="store_true", help="starts a process of its own that ignores all of it, too")
options.add_argument("--noisy", action="store_true", help="writes to its standard output what is no message")
options.add_argument("--marks", help="a folder in which it leaves a file for each start and each call")
options = options.parse_args()

writing = threading.Lock()
cancelled = {}
waiting = {}
late = []
grown = []
next_id = [1000]


def send(message):
    line = json.dumps(message)
    with writing:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def raw(text):
    with writing:
        sys.stdout.write(text)
        sys.stdout.flush()


def answer(id, result):
    if options.modern:
        result = {"resultType": "complete", **result}
    send({"jsonrpc": "2.0", "id": id, "result": result})


def refuse(id, code, message, data=None):
    error = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    send({"jsonrpc": "2.0", "id": id, "error": error})


def notify(method, params):
    send({"jsonrpc": "2.0", "method": method, "params": params})


def text(*lines):
    return {"content": [{"type": "text", "text": line} for line in lines]}


def mark(name):
    """Leaves a file, and says how many of them there are now."""
    if not options.marks:
        return 0
    count = len([entry for entry in os.listdir(options.marks) if entry.startswith(name + "-")])
    with open(os.path.join(options.marks, f"{name}-{os.getpid()}-{time.monotonic_ns()}"), "w"):
        return count + 1


def ask(method, params):
    """Asks the client in the old way and waits for its answer."""
    next_id[0] += 1
    id, event = next_id[0], threading.Event()
    waiting[id] = [event, None]
    send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    event.wait(20)
    return waiting.pop(id)[1]


# ----------------------------------------------------------------------------------------------------------- the tools


def tool_echo(id, arguments, params):
    return {**text(json.dumps(arguments)), "structuredContent": arguments}


def tool_hologram(id, arguments, params):
    return {"content": [{"type": "hologram", "beam": [1, {"x": "ü"}]}, {"type": "text", "text": "a", "later": 1}]}


def tool_fail(id, arguments, params):
    return {**text("it went wrong"), "isError": True}


def tool_refuse(id, arguments, params):
    refuse(id, arguments.get("code", -32603), "not today")


def tool_environment(id, arguments, params):
    return text(json.dumps(dict(os.environ)))


def tool_pid(id, arguments, params):
    return {**text(str(os.getpid())), "structuredContent": {"starts": mark("pid")}}


def tool_sleep(id, arguments, params):
    """Works until it is told to stop, or the time is over."""
    mark("sleep")
    event = cancelled.setdefault(id, threading.Event())
    if event.wait(arguments.get("seconds", 60)):
        mark("cancelled")
        if arguments.get("stubborn"):
            answer(id, text("too late"))
        return None
    return text("awake")


def tool_die(id, arguments, params):
    """Ends in the middle of the call; the second process, if `once`, does what it is asked."""
    if mark("die") > 1 and arguments.get("once"):
        return text("alive")
    os._exit(3)


def tool_progress(id, arguments, params):
    token = params.get("_meta", {}).get("progressToken")
    for done in (1, 2):
        notify("notifications/progress", {"progressToken": token, "progress": done, "total": 4, "message": f"step {done}"})
    notify("notifications/progress", {"progressToken": "somebody else's", "progress": 9, "total": 10})
    notify("notifications/message", {"level": "warning", "data": "careful"})
    return text("done")


def tool_confirm(id, arguments, params):
    question = {"mode": "form", "message": "Really?", "requestedSchema": {"type": "object", "properties": {"ok": {"type": "boolean"}}}}
    if options.modern:
        given = params.get("inputResponses", {}).get("sure")
        if given is None:
            requests = {"sure": {"method": "elicitation/create", "params": question}}
            send({"jsonrpc": "2.0", "id": id, "result": {"resultType": "input_required", "inputRequests": requests, "requestState": "s1"}})
            return None
        return text(json.dumps({"given": given, "state": params.get("requestState")}))
    return text(json.dumps({"given": ask("elicitation/create", question)}))


def tool_nag(id, arguments, params):
    """Asks for ever."""
    send({"jsonrpc": "2.0", "id": id, "result": {"resultType": "input_required", "requestState": "again"}})


def tool_sample(id, arguments, params):
    return text(json.dumps(ask("sampling/createMessage", {"messages": [], "maxTokens": 1})))


def tool_grow(id, arguments, params):
    grown.append(f"grown_{len(grown)}")
    notify("notifications/tools/list_changed", {})
    return text("grown")


def tool_flood(id, arguments, params):
    for n in range(arguments.get("count", 20000)):
        notify("notifications/message" if n % 2 else "notifications/tools/list_changed", {"level": "info", "data": "x" * 50})
    return text("dry")


def tool_big(id, arguments, params):
    raw('{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"' % id)
    for _ in range(arguments["megabytes"]):
        raw("x" * (1 << 20))
    raw('"}]}}\n')


def tool_garbage(id, arguments, params):
    raw("this is no message\n{\"half\": \n\x00\xff\n[]\n{}\n")
    return text("after the garbage")


def tool_half(id, arguments, params):
    raw('{"jsonrpc":"2.0","id":%d,"res' % id)
    os._exit(0)


def tool_wrong_id(id, arguments, params):
    answer(id + 10_000, text("for somebody else"))
    send({"jsonrpc": "2.0", "id": None, "result": {}})
    return text("for you")


def tool_twice(id, arguments, params):
    answer(id, text("first"))
    answer(id, text("second"))


def tool_complain(id, arguments, params):
    for _ in range(arguments.get("lines", 20000)):
        sys.stderr.write("y" * 200 + "\n")
    sys.stderr.write("z" * 100_000 + "\nlast words\n")
    sys.stderr.flush()
    return text("complained")


def tool_nonsense(id, arguments, params):
    send({"jsonrpc": "2.0", "id": id, "result": arguments.get("result", "nonsense")})


# -------------------------------------------------------------------------------------------------------- the protocol


def all_tools():
    own = [name[len("tool_"):] for name in globals() if name.startswith("tool_")]
    tools = [{"name": name, "description": f"The tool {name}.", "inputSchema": {"type": "object"}} for name in own + grown]
    tools += [{"name": f"extra_{n}", "description": "One of many.", "inputSchema": {"type": "object"}} for n in range(options.tools)]
    if options.twins:
        tools += [{"name": "twin", "inputSchema": {"type": "object"}}] * 2
    if options.long_names:
        tools.append({"name": "n" * 200, "inputSchema": {"type": "object"}})
    return tools


def list_tools(id, params):
    start = int(params.get("cursor", 0))
    tools = all_tools()
    result = {"tools": tools[start : start + options.page]}
    if options.endless_pages:
        result["nextCursor"] = "0"
    elif start + options.page < len(tools):
        result["nextCursor"] = str(start + options.page)
    answer(id, result)


def call(id, params):
    tool = globals().get("tool_" + params.get("name", ""))
    if tool is None:
        return refuse(id, -32602, "no such tool")
    result = tool(id, params.get("arguments", {}), params)
    if result is not None:
        answer(id, result)


def discover(id):
    if options.slow_to_start:
        options.slow_to_start = False
        return late.append(id)
    if options.die_of_discover:
        os._exit(4)
    if not options.modern:
        return refuse(id, -32601, "Method not found")
    versions = ["2026-07-28"] if options.version == "2025-11-25" else [options.version]
    capabilities = {"tools": {"listChanged": True}}
    answer(id, {"supportedVersions": versions, "capabilities": capabilities, "serverInfo": {"name": "misbehaving", "version": "1"}})


def initialize(id, params):
    for unanswered in late:
        discover(unanswered)
    if options.modern:
        return refuse(id, -32601, "Method not found")
    mark("hello-" + params["clientInfo"]["name"])
    info = {"name": "misbehaving", "version": "1"}
    answer(id, {"protocolVersion": options.version, "capabilities": {"tools": {"listChanged": True}}, "serverInfo": info})


def resources(id, method, params):
    if method == "resources/list":
        answer(id, {"resources": [{"uri": "memo://one", "name": "one"}]})
    elif method == "resources/read":
        answer(id, {"contents": [{"uri": params["uri"], "text": "hello"}]})
    elif method == "prompts/list":
        answer(id, {"prompts": [{"name": "greet"}]})
    else:
        refuse(id, -32601, "Method not found")


def handle(message):
    method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method is None:
        if id in waiting:
            waiting[id][1] = message.get("result", message.get("error"))
            waiting[id][0].set()
    elif method == "notifications/cancelled":
        cancelled.setdefault(params.get("requestId"), threading.Event()).set()
    elif id is None or options.mute:
        return
    elif method == "server/discover":
        discover(id)
    elif method == "initialize":
        initialize(id, params)
    elif method == "ping":
        if not options.deaf_to_ping:
            answer(id, {})
    elif method == "tools/list":
        list_tools(id, params)
    elif method == "tools/call":
        threading.Thread(target=call, args=(id, params), daemon=True).start()
    elif method == "subscriptions/listen":
        notify("notifications/subscriptions/acknowledged", {"_meta": {"io.modelcontextprotocol/subscriptionId": id}, **params})
    else:
        resources(id, method, params)


starts = mark("start")
sys.stderr.write(f"started as {os.getpid()}\n")
sys.stderr.flush()
if options.exit_at_start or (options.starts_once and starts > 1):
    sys.exit(7)
if options.noisy:
    raw("Welcome to the noisy server!\n")
if options.stays:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if options.stays_until_told:
    signal.signal(signal.SIGTERM, lambda *_: (mark("told"), os._exit(9)))
if options.offspring and os.fork() == 0:
    # Nothing of its parent's is held open, so that only whoever ends whole trees finds it.
    for descriptor in range(3):
        os.close(descriptor)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(60)
for line in sys.stdin:
    if line.strip():
        handle(json.loads(line))
while options.stays or options.stays_until_told:
    time.sleep(60)

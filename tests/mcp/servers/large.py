"""An MCP server over stdio whose answers are large or late, with nothing but the standard library.

`picture` answers with a PNG of so many bytes, `words` with a text, `table` with structure and the same as text. `steps` works for
so many tenths of a second and says so after each; `silent` does the same without a word.
"""

import base64
import json
import struct
import sys
import threading
import time
import zlib

writing = threading.Lock()


def send(message):
    line = json.dumps(dict(jsonrpc="2.0", **message)) + "\n"
    with writing:
        sys.stdout.write(line)
        sys.stdout.flush()


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(size):
    """A picture of one dot, as long as it is wanted: what is missing stands in a chunk that viewers pass over."""
    head = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    rest = chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")) + chunk(b"IEND", b"")
    return head + chunk(b"teSt", bytes(size - len(head) - len(rest) - 12)) + rest


def tool(name, description, **properties):
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": description, "inputSchema": schema}


def listed():
    number = {"type": "integer", "description": "how many"}
    table = tool("table", "Answers with a table of so many bytes.", bytes=number)
    table["outputSchema"] = {"type": "object", "properties": {"rows": {"type": "string"}}, "required": ["rows"]}
    return [
        tool("picture", "Answers with a picture of so many bytes.", bytes=number),
        tool("words", "Answers with a text of so many bytes.", bytes=number),
        table,
        tool("steps", "Works for so many steps and says so after each.", steps=number),
        tool("silent", "Works for so many steps and says nothing.", steps=number),
    ]


def work(token, steps, says):
    for done in range(steps):
        time.sleep(0.1)
        if says and token is not None:
            send({"method": "notifications/progress", "params": {"progressToken": token, "progress": done + 1}})
    return {"content": [{"type": "text", "text": f"{steps} steps"}]}


def called(params):
    name, arguments = params["name"], params.get("arguments", {})
    token = params.get("_meta", {}).get("progressToken")
    if name == "picture":
        data = base64.b64encode(png(arguments["bytes"])).decode()
        text = {"type": "text", "text": "a picture"}
        return {"content": [text, {"type": "image", "data": data, "mimeType": "image/png"}]}
    if name == "words":
        return {"content": [{"type": "text", "text": "w" * arguments["bytes"]}]}
    if name == "table":
        rows = {"rows": "r" * arguments["bytes"]}
        return {"content": [{"type": "text", "text": json.dumps(rows, indent=2)}], "structuredContent": rows}
    return work(token, arguments["steps"], name == "steps")


def answer(message):
    method, params = message["method"], message.get("params", {})
    if method == "initialize":
        about = {"name": "large", "version": "1.0.0"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": listed()}
    if method == "tools/call":
        return called(params)
    return {} if method == "ping" else None


def serve(message):
    result = answer(message)
    if result is None:
        send({"id": message["id"], "error": {"code": -32601, "message": "unknown"}})
    else:
        send({"id": message["id"], "result": result})


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        threading.Thread(target=serve, args=(message,), daemon=True).start()

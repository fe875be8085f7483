"""One JSON-RPC message per line on stdin and stdout (`gantry/1`); stderr is the log. The process may serve many calls.

Reading is done here and work in another thread, so that `cancel` is heard in the middle of a call.
"""

import json
import queue
import sys
import threading

PROTOCOL, sys.stdout = sys.stdout, sys.stderr  # `print` is a line of the log


def send(**message):
    PROTOCOL.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    PROTOCOL.flush()


def run(parameters, cancelled):
    send(method="progress", params={"percent": 50, "phase": "greet"})
    if cancelled.is_set():
        raise RuntimeError("cancelled")
    return {"greeting": f"Hello, {parameters['name']}!"}


def work(calls, cancelled):
    while (call := calls.get()) is not None:
        try:
            send(id=call["id"], result=run(call["params"]["parameters"], cancelled))
        except Exception as error:  # the caller reads the message: keep paths and secrets out of it
            print(repr(error), file=sys.stderr)
            send(id=call["id"], error={"code": 1, "message": "the greeting could not be made"})


def main():
    calls, cancelled = queue.Queue(), threading.Event()
    threading.Thread(target=work, args=(calls, cancelled), daemon=True).start()
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "invoke":
            cancelled.clear()
            calls.put(message)
        elif message.get("method") == "cancel":
            cancelled.set()


if __name__ == "__main__":
    main()

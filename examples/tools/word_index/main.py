"""Word index: a tool in session mode (`gantry/1`) that can be resumed.

After each text it tells Gantry its state with the request `checkpoint`. If a call goes on from an earlier one, `invoke` has
the member `resume` with the state that was saved last, and the work begins there. A tool that saves must cope with both:
with a state that is one text behind, and with none at all.
"""

import json
import sys

PROTOCOL, sys.stdout = sys.stdout, sys.stderr  # `print` is a line of the log


def send(**message):
    PROTOCOL.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    PROTOCOL.flush()


class Call:
    """One call. Everything is done in the one thread, so an answer is simply the next line with its id."""

    def __init__(self, message):
        self.id = message["id"]
        self.params = message["params"]
        self.asked = 0

    def checkpoint(self, state, name=None, **more):
        """Saves; a refusal is no reason to stop."""
        self.asked += 1
        own = f"c{self.asked}"
        send(id=own, method="checkpoint", params={"name": name, "state": state, **more})
        for line in sys.stdin:
            message = json.loads(line)
            if message.get("id") == own:
                if "error" in message:
                    print("not saved:", message["error"]["message"], file=sys.stderr)
                return
            if message.get("method") == "cancel":
                raise KeyboardInterrupt

    def run(self):
        parameters = self.params["parameters"]
        texts, fail_after = parameters["texts"], parameters.get("fail_after")
        state = (self.params.get("resume") or {}).get("state") or {"next": 0, "words": {}}
        began = state["next"]
        for at in range(began, len(texts)):
            if fail_after is not None and at - began >= fail_after:
                raise RuntimeError("told to give up")
            for word in texts[at].split():
                state["words"][word] = state["words"].get(word, 0) + 1
            state["next"] = at + 1
            send(method="progress", params={"percent": 100 * (at + 1) / len(texts), "phase": "count"})
            half = at + 1 == (len(texts) + 1) // 2
            self.checkpoint(state, "half_way" if half else None, counters={"texts": at + 1})
        return {"texts": len(texts), "words": state["words"], "read_in_this_call": len(texts) - began}


def main():
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") != "invoke":
            continue
        call = Call(message)
        try:
            send(id=call.id, result=call.run())
        except KeyboardInterrupt:
            send(id=call.id, error={"code": 1, "message": "cancelled"})
        except Exception as problem:  # The caller learns that it failed, the operator why.
            print(f"{type(problem).__name__}: {problem}", file=sys.stderr, flush=True)
            send(id=call.id, error={"code": 2, "message": "the texts could not be counted"})


if __name__ == "__main__":
    main()

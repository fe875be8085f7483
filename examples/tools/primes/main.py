"""Prime numbers: a tool in session mode (`gantry/1`).

Each line on stdin and stdout is one JSON-RPC 2.0 message. Gantry sends the request `invoke` and perhaps the notification
`cancel`; the tool tells its `progress` and `log` and answers. One process serves many calls, one after the other, and ends
when its stdin does. stdout belongs to the protocol: `print` goes to stderr here.
"""

import json
import queue
import sys
import threading

PROTOCOL, sys.stdout = sys.stdout, sys.stderr
SEGMENT = 100_000


class Cancelled(Exception):
    """Gantry does not want the result any more."""


def send(**message):
    PROTOCOL.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    PROTOCOL.flush()


def tell(method, **params):
    send(method=method, params=params)


def primes(limit, check):
    """Counts primes segment by segment; `check` is asked between two of them."""
    root = int(limit**0.5) + 1
    sieve = bytearray([1]) * (root + 1)
    base = []
    for number in range(2, root + 1):
        if sieve[number]:
            base.append(number)
            sieve[number * number :: number] = bytes(len(range(number * number, root + 1, number)))
    count, largest = 0, 0
    for low in range(2, limit + 1, SEGMENT):
        check(100 * (low - 2) / limit)
        high = min(low + SEGMENT - 1, limit)
        segment = bytearray([1]) * (high - low + 1)
        for prime in base:
            first = max(prime * prime, (low + prime - 1) // prime * prime)
            if first <= high:
                segment[first - low :: prime] = bytes(len(range(first, high + 1, prime)))
        count += sum(segment)
        if 1 in segment:
            largest = low + segment.rindex(1)
    return {"count": count, "largest": largest}


def serve(calls, cancelled):
    while (call := calls.get()) is not None:
        told = -1

        def check(percent):
            nonlocal told
            if cancelled.is_set():
                raise Cancelled
            if int(percent) > told:
                told = int(percent)
                tell("progress", percent=percent, phase="sieve")

        try:
            limit = call["params"]["parameters"]["limit"]
            tell("log", level="info", message=f"looking at numbers up to {limit}")
            send(id=call["id"], result=primes(limit, check))
        except Cancelled:
            send(id=call["id"], error={"code": 1, "message": "cancelled"})
        except Exception as problem:  # The caller learns that it failed, the operator why.
            print(f"{type(problem).__name__}: {problem}", file=sys.stderr, flush=True)
            send(id=call["id"], error={"code": 2, "message": "the numbers could not be counted"})


def main():
    # Reading in one thread and working in another is what lets a `cancel` be heard in the middle of a call.
    calls, cancelled = queue.Queue(), threading.Event()
    worker = threading.Thread(target=serve, args=(calls, cancelled), daemon=True)
    worker.start()
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "invoke":
            cancelled.clear()
            calls.put(message)
        elif message.get("method") == "cancel":
            cancelled.set()
    # Nobody is there to read an answer any more.
    cancelled.set()
    calls.put(None)
    worker.join(timeout=1)


if __name__ == "__main__":
    main()

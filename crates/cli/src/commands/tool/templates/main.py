"""Parameters come as JSON on stdin, the result goes as JSON to stdout, stderr is the log, a non-zero exit is an error."""

import json
import sys


def run(parameters):
    return {"greeting": f"Hello, {parameters['name']}!"}


if __name__ == "__main__":
    json.dump(run(json.load(sys.stdin)), sys.stdout)

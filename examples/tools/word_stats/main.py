"""Word statistics: the smallest process tool.

Simple mode of the process protocol: the parameters come as one JSON object on stdin, the result goes as JSON to stdout,
anything on stderr is a log, and a non-zero exit code says that the tool failed.
"""

import json
import sys


def main() -> int:
    parameters = json.load(sys.stdin)
    text = parameters["text"]
    print(f"counting {len(text)} characters", file=sys.stderr)
    json.dump({"words": len(text.split()), "characters": len(text)}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())

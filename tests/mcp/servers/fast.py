"""A server as people write them with FastMCP; the folder of the package is named first."""

import sys

sys.path.insert(0, sys.argv[1])

from fastmcp import FastMCP  # noqa: E402

server = FastMCP("fast")


@server.tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool
def shout(text: str) -> str:
    """Says it louder."""
    return text.upper() + "!"


if __name__ == "__main__":
    server.run(show_banner=False)

"""The official Python client, as it is installed here: `connect(url, elicit, [mode])`."""

from importlib.metadata import version

if version("mcp").startswith("1."):
    from mcp1 import connect
else:
    from mcp2 import connect

__all__ = ["connect"]

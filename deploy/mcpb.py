"""Makes a bundle for clients with MCP Bundles, such as Claude Desktop: python3 -m mcpb BINARY OUT VERSION, in deploy/.

raincheck-VERSION-SYSTEM-MACHINE.mcpb connects such a client, which itself only starts programs, to a server at an address: the client
asks for the address when the bundle is installed. A server that the client starts is wrapped by `raincheck wrap` in place of it.
Equal input gives equal bytes.
"""

import json
import sys

import binary
import packing


def main(path, out, version):
    program = binary.read(path)
    package = json.loads(packing.read("deploy/npm/package.json"))
    entry = f"server/{program.file}"
    manifest = {
        "manifest_version": "0.3",
        "name": "raincheck",
        "version": version,
        "description": package["description"],
        "long_description": "Connects to one MCP server at an address. A tool that takes longer than the client waits goes on, "
        "and its result is collected later.",
        "author": {"name": "The raincheck authors"},
        "license": package["license"],
        "keywords": package["keywords"],
        "server": {
            "type": "binary",
            "entry_point": entry,
            "mcp_config": {
                "command": f"${{__dirname}}/{entry}",
                "args": ["stdio", "--upstream", "${user_config.upstream}"],
                "env": {},
            },
        },
        # They are those of the server.
        "tools_generated": True,
        "prompts_generated": True,
        "user_config": {
            "upstream": {
                "type": "string",
                "title": "Address of the server",
                "description": "The MCP server with slow tools, such as http://127.0.0.1:8000/mcp",
                "required": True,
            }
        },
        "compatibility": {"platforms": [program.system]},
    }
    files = [("manifest.json", json.dumps(manifest, indent=2).encode() + b"\n", 0o644), (entry, program.data, 0o755)]
    files += [(licence, packing.read(licence), 0o644) for licence in packing.LICENCES]
    packing.write(out, f"raincheck-{version}-{program.system}-{program.machine}.mcpb", packing.zipped(files))


main(*sys.argv[1:])

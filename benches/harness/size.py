"""How large the programs are, stripped."""


def sizes(targets):
    for label, path in (("raincheck", targets.raincheck_path), ("hyper-limit", targets.programs / "hyper-limit")):
        yield {"label": label, "mode": "size", "concurrency": 1, "bytes": path.stat().st_size, "errors": 0}

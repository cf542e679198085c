"""Fill pages from files that are kept elsewhere, and let docstrings use short names."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from sphinx.util.nodes import make_refnode

DOCS = Path(__file__).resolve().parent.parent


def setup(app: Any) -> dict[str, bool]:
    """Register what happens while pages are read and linked."""
    app.connect("source-read", _fill)
    app.connect("missing-reference", _link_short_name)
    return {"parallel_read_safe": True}


def _fill(app: Any, docname: str, source: list[str]) -> None:
    """Add to a page what is kept elsewhere."""
    if docname == "changelog":
        app.env.note_dependency(str(DOCS.parent / "CHANGELOG.md"))
        source[0] = changelog((DOCS.parent / "CHANGELOG.md").read_text(encoding="utf-8"))
    elif docname == "benchmarks":
        results = sorted((DOCS / "benchmarks" / "results").glob("*.json"))
        source[0] += "".join(map(benchmark, results))


def _link_short_name(app: Any, env: Any, node: Any, contents: Any) -> Any:
    """Link a bare name to the one object that ends in it: objects are documented where they are imported from."""
    if node.get("refdomain") != "py":
        return None
    domain, ending = env.get_domain("py"), "." + node["reftarget"].rpartition(".")[2]
    kinds = domain.objtypes_for_role(node["reftype"]) or ()
    found = {
        (entry.docname, entry.node_id): name
        for name, entry in domain.objects.items()
        if name.endswith(ending) and entry.objtype in kinds
    }
    if len(found) != 1:
        return None
    (((docname, node_id), name),) = found.items()
    return make_refnode(app.builder, node["refdoc"], docname, node_id, contents, name)


def changelog(text: str) -> str:
    """Rewrite the changelog's simple Markdown: headings and links differ, the rest is the same."""
    lines = []
    for line in re.sub(r"\[([^\]]+)\]\((\S+?)\)", r"`\1 <\2>`__", text).splitlines():
        level, _, title = line.partition(" ")
        heading = bool(level) and not level.strip("#")
        lines += [title, "=-~"[len(level) - 1] * len(title)] if heading else [line]
    return "\n".join(lines)


def benchmark(path: Path) -> str:
    """Describe one result: where it was measured, and its rows in tables of equal columns."""
    result = json.loads(path.read_text(encoding="utf-8"))
    where = result["environment"]
    packages = ", ".join(f"{name} {number}" for name, number in where["packages"].items() if number)
    text = f"\n\n{result['benchmark']}\n{'-' * len(result['benchmark'])}\n\n"
    text += f"sklearn_fairleak {where['sklearn_fairleak']}, Python {where['python']}, {where['system']} on "
    text += f"{where['architecture']}, {where['cores']} cores; {packages}. "
    seconds = result["seconds"]
    text += "Measured over several runs.\n" if seconds is None else f"Measured in {seconds:.0f} s.\n"
    grouped: dict[tuple[str, ...], list[list[Any]]] = {}
    for row in result["rows"]:
        grouped.setdefault(tuple(row), []).append(list(row.values()))
    for columns, rows in grouped.items():
        text += "\n.. csv-table::\n   :header-rows: 1\n\n"
        for cells in (list(columns), *rows):
            quoted = ['"' + _cell(value).replace('"', '""') + '"' for value in cells]
            text += "   " + ", ".join(quoted) + "\n"
    return text


def _cell(value: Any) -> str:
    """Show four digits of a number, a dash for nothing, and text as it is."""
    if value is None:
        return "–"
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return re.sub(r"([\\*`|_])", r"\\\1", text)

"""The shape of the package: imports run downwards, and no module is in a circle, not even by way of a late import."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import inplace_magic

PACKAGE = Path(inplace_magic.__file__).parent


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imported(module: str) -> Iterator[str]:
    """Every module of ours that a module imports: at its top, in a function, for annotations only."""
    path = MODULES[module]
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                found = f"{origin}.{alias.name}"
                yield found if found in MODULES else origin
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


# A record draws itself where it is asked for its repr, with what draws records.
DRAWS_ITSELF = {
    ("inplace_magic.diagnosis", "inplace_magic.report.html"),
    ("inplace_magic.diagnosis", "inplace_magic.report.text"),
}
GRAPH = {
    module: {
        other
        for other in imported(module)
        if other in MODULES and other != module and (module, other) not in DRAWS_ITSELF
    }
    for module in MODULES
}


def circles() -> list[list[str]]:
    """Each strongly connected component of more than one module (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(GRAPH[module]):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            at = stack.index(module)
            component = stack[at:]
            del stack[at:]
            if len(component) > 1:
                found.append(sorted(component))

    for module in sorted(GRAPH):
        if module not in index:
            visit(module)
    return found


def test_no_module_is_in_a_circle() -> None:
    assert circles() == []


def described() -> dict[str, str]:
    """What ARCHITECTURE.md says of each file, by its path in the package."""
    found, folder = {}, ""
    for line in (PACKAGE.parent / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("### "):
            folder = "" if line == "### inplace_magic/" else line.removeprefix("### ")
        elif line.startswith("| `") and ".py` | " in line:
            name, _, said = line.removeprefix("| `").removesuffix(" |").partition("` | ")
            found[folder + name] = said
    return found


def test_the_page_on_the_architecture_has_each_file_with_its_own_first_sentence() -> None:
    own = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.name != "__init__.py":
            doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            own[str(path.relative_to(PACKAGE))] = " ".join(doc.split("\n\n")[0].split())
    assert described() == own

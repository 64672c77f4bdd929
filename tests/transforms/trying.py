"""What a rule proposes for some cells: from the text alone, or from a real failure."""

from __future__ import annotations

import ast
import textwrap

from inplace_magic.diagnosis import Fix
from inplace_magic.record.evidence import Evidence, RecordedConflict, Save, Write
from inplace_magic.search import propose
from inplace_magic.source.document import CellSource
from inplace_magic.source.location import SourceRange
from inplace_magic.source.modules import imported
from inplace_magic.source.sources import Sources
from inplace_magic.transforms.problem import Problem
from inplace_magic.transforms.proposal import Proposal

from ..cells import run_cells

MODULES = {"torch": "torch", "nn": "torch.nn", "F": "torch.nn.functional"}  # as people import them


def clean(cell: str) -> str:
    return textwrap.dedent(cell).lstrip("\n")


def proposals(
    rule: str,
    *cells: str,
    write: str,
    save: str | None = None,
    family: str = "modified",
    inplace: tuple[tuple[str, str], ...] = (),
    callers: tuple[str, ...] = (),
    raised: tuple[str, ...] = (),
    **about: object,
) -> list[Proposal]:
    """What ``rule`` proposes where the source ``write`` broke what the source ``save`` had saved.

    ``callers`` are the calls that led to the write, innermost first; ``raised`` is where the backward failed, with the calls
    that led there; ``about`` are more attributes of the write.
    """
    texts = [clean(cell) for cell in cells]
    names = {name: module for text in texts for name, module in imported(ast.parse(text)).items()} or MODULES
    sources = Sources({n: CellSource(n, text, modules=names) for n, text in enumerate(texts, 1)}, {}, len(texts))
    stack = tuple(_spot(sources, text) for text in (write, *callers))
    clash = RecordedConflict(
        kind="modified" if family == "modified" else "refused",
        write=Write(1, stack, **about),  # type: ignore[arg-type]
        save=Save(0, (_spot(sources, save),)) if save is not None else None,
        family=family,
    )
    evidence = Evidence(cells=(len(texts),), fresh=True, clashes=(clash,), inplace_modules=inplace)
    found = propose(
        Problem(family, clash, evidence, sources, len(texts), tuple(_spot(sources, text) for text in raised))
    )
    return [p for p in found if p.rule == rule]


def titles(rule: str, *cells: str, **about: object) -> list[str]:
    return [p.title for p in proposals(rule, *cells, **about)]  # type: ignore[arg-type]


def _spot(sources: Sources, source: str) -> SourceRange:
    """Where a piece of source stands: the last place that reads so."""
    for number, cell in sorted(sources.cells.items(), reverse=True):
        assert cell.tree is not None
        nodes = [n for n in ast.walk(cell.tree) if isinstance(n, (ast.expr, ast.stmt))]
        found = [n for n in nodes if ast.get_source_segment(cell.python, n) == source]
        if found:
            node = max(found, key=lambda n: (n.lineno, n.col_offset))
            function = _function(cell.tree, node)
            return SourceRange(
                number, f"<{number}>", function, node.lineno, node.end_lineno, node.col_offset, node.end_col_offset
            )
    raise AssertionError(f"{source!r} stands nowhere")


def _function(tree: ast.AST, node: ast.AST) -> str:
    """The qualified name of the function around a node."""
    names: list[str] = []

    def visit(above: ast.AST, prefix: str) -> bool:
        for child in ast.iter_child_nodes(above):
            inner = prefix
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                inner = f"{prefix}{child.name}." + ("<locals>." if isinstance(child, ast.FunctionDef) else "")
            if child is node or visit(child, inner):
                names.append(prefix)
                return True
        return False

    visit(tree, "")
    return names[0].removesuffix(".").removesuffix(".<locals>") or "<module>"


def fix_by(rule: str, *cells: str) -> Fix:
    """The proved fix that a rule gives for a real failure."""
    run = run_cells(*cells)
    assert run.diagnosis is not None, run.output
    found = [fix for fix in run.diagnosis.fixes if fix.rule == rule]
    assert found, [(fix.rule, fix.gradients, fix.title) for fix in run.diagnosis.fixes]
    return found[0]


def rewritten(cell: str, *changes: tuple[str, str]) -> str:
    """A cell with some of its text exchanged, each piece found exactly once; written as a fix gives it."""
    text = clean(cell)
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text.rstrip()


def fixes(*cells: str) -> tuple[Fix, ...]:
    """The fixes that were proved for a real failure."""
    run = run_cells(*cells)
    assert run.diagnosis is not None, run.output
    return run.diagnosis.fixes


def rules(*cells: str) -> list[str]:
    """Their rules."""
    return [fix.rule for fix in fixes(*cells)]

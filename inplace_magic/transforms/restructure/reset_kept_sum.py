"""What a method sums up on its object, and a constructor has begun with zero, begins anew in each call.

def forward(self, x):                     def forward(self, x):
                                              self.votes = torch.zeros_like(self.votes)
    for net in self.nets:                     for net in self.nets:
        self.votes += net(x)                      self.votes += net(x)
    return self.votes / len(self.nets)        return self.votes / len(self.nets)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ...message import message
from ...source.bindings import Binding, bindings, parameters
from ...source.bindings import reads as reads_of
from ...source.blocks import loops
from ...source.dataflow import added, called_name, calls, reads
from ...source.editor import Code, dotted
from ..analysis.targets import root_text, torch_name, written_by
from ..problem import Frame, Problem, parted
from ..proposal import Proposal, in_one_text
from ..registry import register

_ZEROS = frozenset({"zeros", "zeros_like", "new_zeros"})


@register("second_backward", "modified")
def reset_kept_sum(problem: Problem) -> Iterator[Proposal]:
    """What a method sums up on its object in a loop, and a constructor has begun with zero once and for all.

    A sum may be a state that goes on on purpose. It is none if it is divided by the number of its terms; nor if these are what
    the parts of the object give, and each backward has one call of its own.
    """
    met: dict[tuple[Code, ast.stmt], list[list[Frame]]] = {}
    for stack in (problem.frames(stack) for edge in problem.crossing.over for stack in (edge.made, edge.used)):
        for depth, frame in enumerate(stack, 1):
            met.setdefault((frame.code, frame.statement), []).append(stack[:depth])
    for (code, statement), stacks in met.items():
        around, summed = loops(code, statement), added(statement)
        if not around or summed is None or not isinstance(around[-1], ast.For) or "." not in (dotted(summed[0]) or ""):
            continue
        name, term, loop = code.text(summed[0]), summed[1], around[-1]
        begun, torch = bindings(code, name, statement), torch_name(problem)
        if len(begun) != 1 or not _is_zero_at_first(code, begun[0]) or reads_of(code, name, [term]):
            continue
        means = _means(code, code.following(loop), f"len({code.text(loop.iter)})")
        mean = any(reads_of(code, name, [one]) for one in means)
        alone = _are_of_own_parts(code, loop, term) and not _is_state(problem, code, statement, name)
        if not mean and not (alone and all(_once(problem, stack) for stack in stacks)):
            continue
        anew = f"{torch}.zeros_like({name})" if torch is not None and isinstance(begun[0].value, ast.Call) else "0"
        line, why = f"{name} = {anew}", message("why_sum_anew", name=name)
        edits = [code.insert_before(loop, line)]
        yield in_one_text(code, edits, line, why, "reset_accumulator: sum", meant=True)


def _are_of_own_parts(code: Code, loop: ast.For, term: ast.expr) -> bool:
    """Whether a loop goes through parts of the method's object, and each term is what one of them gives: not steps in time,
    which are handed to the method, or have a length.
    """
    own, *given = [*parameters(code.function(loop)), ""]
    through = reads(loop.iter)
    scaled = any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mult) and _is_length(n) for n in ast.walk(term))
    told = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)} & _called(loop)
    return own in through and not through & {*given} and bool(told) and not scaled


def _called(loop: ast.For) -> set[str]:
    """What is called in a loop, and what tells it: ``net`` of ``net(x)``, ``i`` of ``nets[i](x)`` and ``getattr(self, f"net{i}")(x)``."""
    found: set[str] = set()
    todo: list[ast.expr] = [call.func for call in calls(loop)]
    while todo:
        match todo.pop():
            case ast.Name(name):
                found.add(name)
            case ast.Attribute(of):
                todo.append(of)
            case ast.Subscript(of, index):
                todo.append(of)
                found |= reads(index)
            case ast.Call(ast.Name("getattr"), [_, name, *_]):
                found |= reads(name)
    return found


def _is_length(product: ast.BinOp) -> bool:
    """``0.1 * f(x)``, ``-self.dt * f(x)``"""
    sides = (getattr(side, "operand", side) for side in (product.left, product.right))
    return any(isinstance(side, (ast.Constant, ast.Attribute)) for side in sides)


def _is_state(problem: Problem, code: Code, statement: ast.stmt, name: str) -> bool:
    """Whether an attribute is read elsewhere, or changed by another statement of the method, or not read behind the loop."""
    method, member = code.function(statement), name.rpartition(".")[2]
    around = {*ast.walk(method)} if method is not None else set()
    of_sum = (n for _, n in problem.nodes(ast.Attribute) if n.attr == member and isinstance(n.ctx, ast.Load))
    others = (s for s in around if isinstance(s, ast.stmt) and s is not statement)
    changed = any(root_text(code, one) == name for s in others for one in written_by(s))
    read = reads_of(code, name, [*code.following(loops(code, statement)[-1])])
    return changed or not read or any(n not in around for n in of_sum)


def _once(problem: Problem, stack: list[Frame]) -> bool:
    """Whether no loop calls what a stack leads to several times before each backward."""
    used, needed = parted(stack, problem.needed)
    beside = bool(used and needed)  # else they part within one statement
    if any(loops(frame.code, frame.statement) for frame in used[1 if beside else 0 : -1]):
        return False
    if not beside:
        return True
    if used[0].code is not needed[0].code:
        return False
    return {*loops(used[0].code, used[0].statement)} <= {*loops(needed[0].code, needed[0].statement)}


def _means(code: Code, statements: list[ast.stmt], number: str) -> list[ast.expr]:
    """What is divided by a number: ``votes`` of ``votes / len(nets)``."""
    divided = (n for s in statements for n in ast.walk(s) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div))
    return [one.left for one in divided if code.text(one.right) == number]


def _is_zero_at_first(code: Code, begun: Binding) -> bool:
    """Whether a constructor begins with zero: ``self.votes = torch.zeros(4, 2)``."""
    zero = called_name(begun.value) in _ZEROS or getattr(begun.value, "value", None) == 0
    return zero and getattr(code.function(begun.statement), "name", "") == "__init__"

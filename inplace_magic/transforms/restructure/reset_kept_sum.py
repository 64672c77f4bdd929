"""What a method, or a closure, sums up in what has begun with zero once and for all begins anew in each call.

def forward(self, x):                     def forward(self, x):
                                              self.votes = torch.zeros_like(self.votes)
    for net in self.nets:                     for net in self.nets:
        self.votes += net(x)                      self.votes += net(x)
    return self.votes / len(self.nets)        return self.votes / len(self.nets)

def make(nets):                           def make(nets):
    votes = torch.zeros(4)                    votes = torch.zeros(4)
    def jury(x):                              def jury(x):
                                                  votes = torch.zeros(4)
        for net in nets:                          for net in nets:
            votes.add_(net(x))                        votes.add_(net(x))
        return votes / len(nets)                  return votes / len(nets)
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ...message import message
from ...source.bindings import Binding, bindings, bound, naming_loop, parameters
from ...source.bindings import reads as reads_of
from ...source.blocks import loops, own_statements
from ...source.dataflow import added, called_name, calls, calls_named, given_to, reads, receiver
from ...source.editor import CONSTRUCTORS, Code, Function, dotted
from ..analysis.targets import root_text, torch_name, written_by
from ..problem import Frame, Problem, parted
from ..proposal import Proposal, in_one_text
from ..registry import register

_ZEROS = frozenset({"zeros", "zeros_like", "new_zeros"})


@register("second_backward", "modified")
def reset_kept_sum(problem: Problem) -> Iterator[Proposal]:
    """What is summed up in a loop on an object, or in a name of the function around, that has begun with zero once and for all.

    A sum may be a state that goes on on purpose. It is none if it is divided by the number of its terms; nor if these are what
    the parts of the object give, and each backward has one call of its own.
    """
    met: dict[tuple[Code, ast.stmt], list[list[Frame]]] = {}
    for stack in (problem.frames(stack) for edge in problem.crossing.over for stack in (edge.made, edge.used)):
        for depth, frame in enumerate(stack, 1):
            met.setdefault((frame.code, frame.statement), []).append(stack[:depth])
    for (code, statement), stacks in met.items():
        summed, loop = _summed(statement), _loop(code, statement, stacks[0])
        if loop is None or summed is None:
            continue
        held = summed[0].value if isinstance(summed[0], ast.Subscript) else summed[0]
        name, term, torch = code.text(held), summed[1], torch_name(problem)
        begun = _begun(code, name, statement) if dotted(held) is not None else []
        if len(begun) != 1 or not _is_zero_at_first(code, begun[0], statement) or reads_of(code, name, [term]):
            continue
        mean = _is_mean(code, code.following(loop), name, _numbers(code, loop))
        alone = _are_of_own_parts(code, loop, term) and not _is_state(problem, code, statement, name)
        if not mean and not (alone and "." in name and all(_once(problem, stack) for stack in stacks)):
            continue
        value, own = begun[0].value, "." not in name
        kept = own or isinstance(value, ast.Dict)  # as it was begun: a name is the function's own then
        handed = {*parameters(code.function(begun[0].statement))[1:]} if kept and not own else set()
        if (value is not None and reads(value) & handed) or (own and _is_read_beside(code, name, statement, begun[0])):
            continue
        anew = f"{torch}.zeros_like({name})" if torch is not None and isinstance(value, ast.Call) else "0"
        line = f"{name} = {code.text(value) if kept and value is not None else anew}"
        edits, why = [code.insert_before(loop, line)], message("why_sum_anew", name=name)
        yield in_one_text(code, edits, line, why, "reset_accumulator: sum", meant=True)


def _is_read_beside(code: Code, name: str, statement: ast.stmt, begun: Binding) -> bool:
    """Whether another function than the closure reads what the function around keeps under a name, or that itself does."""
    maker, own = code.function(begun.statement), code.function(statement)
    inside = {*ast.walk(own)} if own is not None else set()
    nodes = ast.walk(maker) if maker is not None else ()
    return any(
        isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) and n not in inside for n in nodes
    )


def _summed(statement: ast.stmt) -> tuple[ast.expr, ast.expr] | None:
    """The sum, and what is added to it: also for ``votes.add_(x)``."""
    match statement:
        case ast.Expr(ast.Call(ast.Attribute(total, "add_"), [term])):
            return total, term
    return added(statement)


def _loop(code: Code, statement: ast.stmt, stack: list[Frame]) -> ast.For | None:
    """The outermost loop around a sum in its function; else that around the call by which a method of the same object asks for
    it.
    """
    around, caller = loops(code, statement), next(iter(stack[-2:-1]), None)
    if not around and caller is not None and caller.code is code:
        mine, theirs = code.function(statement), code.function(caller.statement)
        beside = mine is not None and theirs is not None and code.parent(mine) is code.parent(theirs)
        around = loops(code, caller.statement) if beside and isinstance(code.parent(mine), ast.ClassDef) else []  # type: ignore[arg-type]
    return around[-1] if around and isinstance(around[-1], ast.For) else None


def _begun(code: Code, name: str, near: ast.stmt) -> list[Binding]:
    """Where an attribute gets its value, be it as a buffer; or a name, in the functions around the one that a statement is in."""
    if "." in name:
        owner, _, attribute = name.rpartition(".")
        top = code.parent(code.function(near) or near)
        buffers = [
            Binding(code.statement(call), call.args[1])
            for call in (calls_named(top, "register_buffer") if isinstance(top, ast.ClassDef) else ())
            if len(call.args) > 1 and code.text(receiver(call) or call) == owner
            if isinstance(call.args[0], ast.Constant) and call.args[0].value == attribute
        ]
        return [*bindings(code, name, near), *buffers]
    outer = [one for one in code.parents(code.function(near) or near) if isinstance(one, Function)]
    made = [
        (s, value) for one in outer for s in own_statements(code, one) for key, value in bound(code, s) if key == name
    ]
    return [Binding(s, value) for s, value in made]


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


def _numbers(code: Code, loop: ast.For) -> set[str]:
    """How many iterations a loop has: ``len(nets)`` for ``nets``, ``enumerate(nets)`` and ``range(len(nets))``, ``n`` for ``range(n)``."""
    named, given = called_name(loop.iter), [code.text(one) for one in given_to(loop.iter)]
    through = [code.text(loop.iter), *(given if named in ("enumerate", "zip") else ())]
    return {*(f"len({one})" for one in through), *(given[-1:] if named == "range" else ())}


def _is_mean(code: Code, statements: Iterable[ast.stmt], name: str, numbers: set[str]) -> bool:
    """Whether what has a name, or an item of it, is divided by one of some numbers: ``votes / len(nets)``, ``votes.div(n)``,
    ``v / n for v in votes.values()``.
    """
    for node in (n for s in statements for n in ast.walk(s)):
        match node:
            case ast.BinOp(left=divided, op=ast.Div(), right=by) | ast.Call(ast.Attribute(divided, "div"), [by]):
                own = getattr(divided, "id", None)
                around = naming_loop(code, node, own) if own is not None else None
                of_items = around is not None and bool(reads_of(code, name, [around.iter]))
                if code.text(by) in numbers and (of_items or reads_of(code, name, [divided])):
                    return True
    return False


def _is_zero_at_first(code: Code, begun: Binding, statement: ast.stmt) -> bool:
    """Whether a constructor, or the function around a closure, begins with zero: ``self.votes = torch.zeros(4, 2)``."""
    values = begun.value.values if isinstance(begun.value, ast.Dict) else [begun.value]
    zero = all(called_name(one) in _ZEROS or getattr(one, "value", None) == 0 for one in values)
    maker = code.function(begun.statement)
    outside = maker is not None and maker in [*code.parents(code.function(statement) or statement)]
    return zero and (outside or getattr(maker, "name", "") in CONSTRUCTORS)

"""A path from parameters to a loss is cut, or goes past a write: the path is made whole again.

code = net(x).detach()                     code = net(x)
loss -= log_prob.item() * reward           loss -= log_prob * reward
fast = {n: p.data.clone() for n, p in …}   fast = {n: p.clone() for n, p in …}
rotation = torch.tensor([c, s])            rotation = torch.stack([c, s])
loss = ((out.round() - y) ** 2).mean()     loss = ((out - y) ** 2).mean()
checkpoint(net, x, use_reentrant=True)     checkpoint(net, x, use_reentrant=False)
net.load_state_dict(state, assign=True)    net.load_state_dict(state)
grads = autograd.grad(loss, fast)          grads = autograd.grad(loss, fast, create_graph=True)

with torch.no_grad():                      code = net(x)
    code = net(x)

optimizer = SGD(net.parameters(), 0.1)     net.weight = nn.Parameter(...)
net.weight = nn.Parameter(...)             optimizer = SGD(net.parameters(), 0.1)
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from ...message import message
from ...source.bindings import bindings
from ...source.blocks import own_statements, scope, upwards, within
from ...source.dataflow import calls_named, is_computed_with, is_step, keyword_named, read_as_number, receiver
from ...source.editor import Code, Edit, atom, dotted
from ...source.lift import lift, unwrapped
from ...source.names import named
from ..analysis.backward_calls import with_create
from ..analysis.meetings import headline
from ..analysis.targets import sites
from ..out_of_place.new_tensor import is_alias, unaliased
from ..problem import Problem
from ..proposal import Proposal, each_then_all, in_one_text
from ..registry import register
from .inference_mode import modes, undecorated

_WHY = message("why_connected")
_FLAT = ("round", "floor", "ceil", "trunc", "sign")


@register("silent")
def connected(problem: Problem) -> Iterator[Proposal]:
    write = problem.clash.write
    if write is None or write.how not in ("untrained", "unreached", "as_data", "as_term", "constant", "flat"):
        return
    for found in sites(problem, depth=3):
        if write.how == "flat":
            yield from _sloped(found.code, found.statement)
        yield from _without_aliases(found.code, found.statement)
        yield from _as_tensors(found.code, found.statement)
        yield from _stacked(found.code, found.statement)
        yield from _with_grad_mode(found.code, found.statement)
        yield from _other_arguments(found.code, found.statement)
        yield from _made_later(found.code, found.statement)


@register("silent")
def recorded(problem: Problem) -> Iterator[Proposal]:
    """A write under no_grad into what a graph continues from: it becomes an operation of that graph."""
    write = problem.clash.write
    if write is not None and write.how == "written" and problem.clash.save is None:
        for found in sites(problem, depth=2):
            yield from _with_grad_mode(found.code, found.statement)


def _with_grad_mode(code: Code, statement: ast.stmt) -> Iterator[Proposal]:
    """Without one of the blocks around a statement that switch it off, or the decorator of its function."""
    for block in upwards(code, statement):
        yield from _without_block(code, block)
    function = code.function(statement)
    for mode in modes(function, "no_grad", "inference_mode") if function is not None else ():
        yield from undecorated(code, mode, _WHY, "connected: block")


def _without_aliases(code: Code, statement: ast.stmt) -> Iterator[Proposal]:
    """Each by itself, then all: one of them may be meant."""
    nodes = [] if isinstance(statement, ast.With) else ast.walk(statement)
    aliases = [n for n in nodes if is_alias(n) and not is_straight_through(code, n)]
    for some in each_then_all(aliases):
        edits = unaliased(code, some)
        if _says_nothing(code, statement, edits):
            title = message("title_block_gone", block=" ".join(code.text(statement).split()))
            yield _proposal(code, title, "connected", code.delete(statement))
            continue
        yield _proposal(code, code.edited(statement, edits).splitlines()[0], "connected", *edits)


def _says_nothing(code: Code, statement: ast.stmt, edits: list[Edit]) -> bool:
    """Whether a statement would be ``x = x``."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    value = getattr(statement, "value", None)
    return value is not None and [code.edited(value, edits)] == [*map(code.text, targets)]


def is_straight_through(code: Code, alias: ast.AST) -> bool:
    """``z + (q - z).detach()``, ``z - (z - q).detach()``: the value of ``q`` with the gradient of ``z``, which would be gone without
    the cut.
    """
    inner = receiver(alias) if isinstance(alias, ast.Call) else getattr(alias, "value", None)
    match inner, code.parent(alias):
        case ast.BinOp(op=ast.Sub(), right=given), ast.BinOp(op=ast.Add(), left=one, right=other):
            return ast.unparse(given) in (ast.unparse(one), ast.unparse(other))
        case ast.BinOp(op=ast.Sub(), left=given), ast.BinOp(op=ast.Sub(), left=one):
            return ast.unparse(given) == ast.unparse(one)
    return False


def _as_tensors(code: Code, statement: ast.stmt) -> Iterator[Proposal]:
    """``x.item()`` and ``float(x)`` as ``x`` where they are computed with; as the whole of a tensor that is made of the number."""
    read: list[tuple[ast.AST, ast.expr]] = []
    for node in ast.walk(statement) if not hasattr(statement, "body") else ():
        value, around = read_as_number(node), code.parent(node)
        if value is None or around is None or not is_computed_with(around):
            continue
        made = isinstance(around, ast.Call)
        if not made or [keyword.arg for keyword in around.keywords] in ([], ["requires_grad"]):  # type: ignore[attr-defined]
            read.append((around if made else node, value))
    for some in each_then_all(read):
        edits = [code.replace(number, atom(code, value)) for number, value in some]
        yield _proposal(code, code.edited(statement, edits), "connected", *edits)


def _stacked(code: Code, statement: ast.stmt) -> Iterator[Proposal]:
    """``torch.tensor([a, b])``, which copies values, as ``torch.stack([a, b])``, which is a part of their graph; a list with a name
    as a ``stack`` of it, or as ``cat`` where each of its items has an axis; a tensor as itself.
    """
    for call in calls_named(statement, "tensor"):
        if not isinstance(call.func, ast.Attribute) or not call.args:
            continue
        torch, given, texts = code.text(call.func.value), call.args[0], list[str]()
        if isinstance(given, (ast.List, ast.Tuple)):
            texts = [stacked(code, torch, given, code.text)]
        elif isinstance(given, (ast.Name, ast.Attribute, ast.Subscript, ast.ListComp)):
            texts = [*(f"{torch}.{joined}({code.text(given)})" for joined in ("stack", "cat")), code.text(given)]
        for text in texts:
            edit = code.replace(call, text)
            yield _proposal(code, code.edited(statement, [edit]).splitlines()[0], "connected", edit)


def stacked(code: Code, torch: str, node: ast.expr, text: Callable[[ast.expr], str]) -> str:
    """A list as a stack of its items, which are tensors (with a ``text`` each), numbers or lists themselves."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return f"{torch}.stack([{', '.join(stacked(code, torch, one, text) for one in node.elts)}])"
    number = isinstance(getattr(node, "operand", node), ast.Constant)
    return f"{torch}.tensor({code.text(node)})" if number else text(node)


def _sloped(code: Code, statement: ast.stmt) -> Iterator[Proposal]:
    """The value itself in the place of its round number, or of its sign; of one that a function gives, which others may want so,
    the gradient straight through as well.
    """
    for call in calls_named(statement, *_FLAT) if not hasattr(statement, "body") else ():
        of = receiver(call)
        if of is None:
            continue
        edit = code.replace(call, atom(code, of))
        yield in_one_text(code, [edit], statement, message("why_sloped"), "connected: sloped")
        if isinstance(of, ast.Name | ast.Attribute) and isinstance(statement, ast.Return):
            edit = code.replace(call, f"({code.text(of)} + ({code.text(call)} - {code.text(of)}).detach())")
            why = message("why_straight_through")
            yield in_one_text(code, [edit], statement, why, "connected: straight through")


def _without_block(code: Code, block: ast.stmt) -> Iterator[Proposal]:
    if isinstance(block, ast.With) and len(block.items) == 1 and (edit := unwrapped(code, block, block.body)):
        for mode in modes(block, "no_grad", "inference_mode"):
            title = message("title_block_gone", block=f"with {code.text(mode)}")
            yield _proposal(code, title, "connected: block", edit)


def _other_arguments(code: Code, statement: ast.stmt) -> Iterator[Proposal]:
    for call in calls_named(statement, "checkpoint", "checkpoint_sequential"):
        reentrant = keyword_named(call, "use_reentrant")
        added = code.add_argument(call, "use_reentrant=False")
        yield _proposal(code, call, "connected", code.replace(reentrant.value, "False") if reentrant else added)
    for call in calls_named(statement, "load_state_dict"):
        if (assign := keyword_named(call, "assign")) is not None:
            yield _proposal(code, call, "connected", code.without_argument(assign))
    for call in calls_named(statement, "grad"):
        if (created := with_create(code, call)) is not None:
            yield _proposal(code, " ".join(code.edited(call, [created]).split()), "connected", created)


def _made_later(code: Code, statement: ast.stmt) -> Iterator[Proposal]:
    """An optimizer that was made ahead of its parameters goes right in front of the statement that uses it first."""
    steps = [one.value for one in own_statements(code, scope(code, statement)) if is_step(one)]  # type: ignore[attr-defined]
    for name in sorted({code.text(step.func.value) for step in steps if dotted(step.func.value) is not None}):
        for made in (b.statement for b in bindings(code, name, statement)[:1]):
            here = within(code, code.block(made), statement)
            first = next((s for s in code.following(made) if any(named(code, name, [s]))), None)
            if here is None or first is None or not made.lineno < here.lineno < first.lineno:
                continue
            edits = [code.delete(made), code.insert_before(first, *lift(code, [made]).lines)]
            title = message("title_made_behind", what=f"{name} = …", other=headline(code, here).strip("`"))
            yield _proposal(code, title, "connected: made later", *edits)


def _proposal(code: Code, title: str | ast.AST, form: str, *edits: Edit) -> Proposal:
    return in_one_text(code, edits, title, _WHY, form)

"""How values flow through a block of statements: what a statement reads, what it binds.

Values are known by their names: ``x``, or ``self.x`` and ``agent.x`` for an attribute; an item of a container counts
as the container.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from .editor import Code, Function, dotted
from .modules import module_of

_WITHOUT_GRAPH = frozenset({"item", "detach", "data", "shape", "device", "dtype"})
_FILLING = frozenset({"append", "extend", "insert", "add", "setdefault", "put", "push"})


def key_of(node: ast.AST) -> str | None:
    """The name under which a value is known: ``x``, ``self.x``; None for anything without a name."""
    while isinstance(node, (ast.Subscript, ast.Starred)):
        node = node.value
    path = dotted(node)
    return None if path is None else ".".join(path.split(".")[:2])


def reads(*nodes: ast.AST) -> set[str]:
    """Names and attributes of names that are read anywhere below some nodes, inner functions included.

    What a comprehension or a lambda calls its own items, or arguments, is no name of what is around it.
    """
    found: set[str] = set()
    todo: list[tuple[ast.AST, frozenset[str]]] = [(node, frozenset()) for node in nodes]
    while todo:
        child, own = todo.pop()
        if isinstance(child, ast.Attribute) and isinstance(child.value, ast.Name) and child.value.id not in own:
            found.add(f"{child.value.id}.{child.attr}")
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load) and child.id not in own:
            found.add(child.id)
        if isinstance(child, ast.AugAssign) and (key := key_of(child.target)) is not None:
            found.add(key)
        inner = own | own_items(child)
        todo += [(below, inner) for below in ast.iter_child_nodes(child)]
        todo += [(one.iter, own) for one in getattr(child, "generators", ())[:1]]  # which is evaluated around it
    return found


def own_items(node: ast.AST) -> set[str]:
    """The names that a comprehension or a lambda binds for itself."""
    if isinstance(node, ast.Lambda):
        return {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)}
    of = [one.target for one in getattr(node, "generators", ())]
    return {n.id for target in of for n in ast.walk(target) if isinstance(n, ast.Name)}


def targets(node: ast.AST) -> Iterator[ast.expr]:
    """The single targets of an assignment, tuples taken apart."""
    if isinstance(node, (ast.Tuple, ast.List)):
        for item in node.elts:
            yield from targets(item)
    elif isinstance(node, ast.Starred):
        yield from targets(node.value)
    elif isinstance(node, ast.expr):
        yield node


def assigned(statement: ast.AST) -> list[ast.expr]:
    """What one assignment statement binds; empty for anything else."""
    if isinstance(statement, ast.Assign):
        return [t for target in statement.targets for t in targets(target)]
    if isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        return [statement.target]
    return []


def handed_on(statement: ast.stmt) -> list[tuple[ast.expr, ast.expr]]:
    """What an assignment gives to what: ``a, b = c, d`` gives c to a and d to b."""
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        return [(statement.target, statement.value)]
    if not isinstance(statement, ast.Assign):
        return []
    return [pair for target in statement.targets for pair in _paired(target, statement.value)]


def _paired(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    match target, value:
        case ast.Tuple(elts=into) | ast.List(elts=into), ast.Tuple(elts=values) | ast.List(elts=values):
            return list(zip(into, values)) if len(into) == len(values) else [(target, value)]
    return [(target, value)]


def added(statement: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """The sum and what is added to it, for ``total += x`` and ``total = total + x``."""
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add):
        return statement.target, statement.value
    given = handed_on(statement) if isinstance(statement, ast.stmt) else []
    total, value = given[0] if len(given) == 1 else (None, None)
    if total is None or not isinstance(value, ast.BinOp):
        return None
    sides = ((value.left, value.right), (value.right, value.left)) if isinstance(value.op, ast.Add) else ()
    return next(((total, other) for one, other in sides if ast.unparse(one) == ast.unparse(total)), None)


def summed_up(node: ast.AST) -> list[ast.expr]:
    """What something is added to, somewhere below a node."""
    return [term[0] for child in ast.walk(node) if (term := added(child)) is not None]


def sums(node: ast.AST) -> set[str]:
    """The names of what something is added to below a node: ``loss`` for ``loss += x``, ``losses`` for ``losses.append(x)``."""
    filled = binds(*(child for child in ast.walk(node) if isinstance(child, ast.Expr)))
    return filled | {key for target in summed_up(node) if (key := key_of(target)) is not None}


def is_inplace_name(name: str) -> bool:
    """``add_``, and not ``requires_grad_``, which changes no value, nor ``__init__``."""
    return name.endswith("_") and not name.endswith("__") and name != "requires_grad_"


def binds(*statements: ast.AST) -> set[str]:
    """Names that some statements bind or fill, at their own level of function."""
    found: set[str] = set()
    todo: list[ast.AST] = [*statements]
    while todo:
        child = todo.pop()
        if isinstance(child, (*Function, ast.ClassDef)):
            found.add(child.name)
            continue
        if isinstance(child, ast.Lambda):
            continue
        bound: list[ast.expr] = []
        if isinstance(child, (ast.stmt, ast.NamedExpr)):
            bound = [*assigned(child), *of_head(child)]
        elif isinstance(child, ast.Call) and isinstance(child.func, ast.Attribute) and child.func.attr in _FILLING:
            bound = [child.func.value]
        found.update(key for target in bound if (key := key_of(target)) is not None)
        todo.extend(ast.iter_child_nodes(child))
    return found


def rebinds(*statements: ast.stmt) -> set[str]:
    """Names whose old value plays no part after some statements. A loop is taken to run at least once."""
    return {name for statement in statements for name in _rebinds(statement)}


def _rebinds(statement: ast.stmt) -> set[str]:
    if isinstance(statement, (ast.With, ast.AsyncWith, ast.For, ast.AsyncFor, ast.While)):
        return _whole(of_head(statement)) | rebinds(*statement.body)
    if isinstance(statement, ast.Try):
        return rebinds(*statement.finalbody) | (set() if statement.handlers else rebinds(*statement.body))
    if isinstance(statement, ast.If):
        return rebinds(*statement.body) & rebinds(*statement.orelse)
    if isinstance(statement, (*Function, ast.ClassDef)):
        return {statement.name}
    if isinstance(statement, ast.AugAssign) or (isinstance(statement, ast.AnnAssign) and statement.value is None):
        return set()
    return _whole(assigned(statement))


def of_head(statement: ast.AST) -> list[ast.expr]:
    """What the head of a loop or of a ``with`` binds."""
    heads = [getattr(statement, "target", None), *(i.optional_vars for i in getattr(statement, "items", ()))]
    return [target for head in heads if head is not None for target in targets(head)]


def _whole(bound: Iterable[ast.expr]) -> set[str]:
    """The names among some targets: of an item of a container the rest keeps its value."""
    return {path for target in bound if (path := key_of(target)) is not None and path == dotted(target)}


def slice_of(statements: Sequence[ast.stmt], wanted: set[str]) -> tuple[list[ast.stmt], set[str]]:
    """The statements that the wanted values are made from, in order, and the names that must exist before them."""
    wanted = set(wanted)
    found: list[ast.stmt] = []
    for statement in reversed(statements):
        if isinstance(statement, (*Function, ast.ClassDef)) or not binds(statement) & wanted:
            continue
        found.append(statement)
        wanted -= rebinds(statement)
        wanted |= value_reads(statement)
    return found[::-1], wanted


def value_reads(statement: ast.stmt) -> set[str]:
    """Names that must have a value before the statement, for what it binds."""
    if isinstance(statement, ast.Assign):
        below = [statement.value, *(t.slice for t in assigned(statement) if isinstance(t, ast.Subscript))]
        return reads(*below)
    if isinstance(statement, (ast.For, ast.AsyncFor, ast.While, ast.If, ast.With, ast.AsyncWith)):
        heads = [getattr(statement, "iter", None), getattr(statement, "test", None)]
        heads += [item.context_expr for item in getattr(statement, "items", ())]
        inner = live_in(statement.body) - _whole(of_head(statement))
        return reads(*filter(None, heads)) | inner | live_in(getattr(statement, "orelse", []))
    return reads(statement)


def live_in(statements: Sequence[ast.stmt]) -> set[str]:
    """Names that must have a value before a block."""
    wanted: set[str] = set()
    for statement in reversed(statements):
        wanted = (wanted - rebinds(statement)) | value_reads(statement)
    return wanted


def items_apart(statements: Sequence[ast.stmt], in_turn: bool = False) -> set[str]:
    """Dicts of which some statements set some items, and read others: ``run`` for ``run["y"] = net(run["x"])``.

    ``in_turn``: they run one after the other, so that an item which one has set is no value of before to those behind it.
    """
    nodes = [n for s in statements for n in ast.walk(s)]
    items = [n for n in nodes if isinstance(n, ast.Subscript) and isinstance(n.slice, ast.Constant)]
    kept = {n.value.id for n in items if isinstance(n.value, ast.Name) and isinstance(n.slice.value, str)}  # type: ignore[attr-defined]
    whole = {n.id for n in nodes if isinstance(n, ast.Name) and not any(n is one.value for one in items)}
    made, read = set[str](), set[str]()
    for statement in statements:
        own = [n for n in ast.walk(statement) if n in items]
        read |= {ast.unparse(n) for n in own if isinstance(n.ctx, ast.Load)} - (made if in_turn else set())
        made |= {ast.unparse(n) for n in own if isinstance(n.ctx, ast.Store)}
    again = {text.partition("[")[0] for text in made & read}
    return kept - whole - again


def roots(statement: ast.stmt) -> set[str]:
    """What a statement with a backward in it goes back from: the loss, or the arguments of a helper that does it."""
    return reads(root_of(statement) or statement)


def root_of(node: ast.AST) -> ast.expr | None:
    """The expression that the first backward in it goes back from; nothing where a helper does it."""
    for call in calls(node):
        name = called_name(call)
        if name == "backward" and isinstance(call.func, ast.Attribute):
            module = module_of(call.func.value) or dotted(call.func.value)
            functional = module in ("torch.autograd", "autograd") and call.args
            return call.args[0] if functional else call.func.value
        if name == "grad" and call.args:
            return call.args[0]
    return None


def calls(node: ast.AST) -> Iterator[ast.Call]:
    return (child for child in ast.walk(node) if isinstance(child, ast.Call))


def calls_made(node: ast.AST) -> Iterator[ast.Call]:
    """The calls that a node makes as it runs: not those of functions that it only defines."""
    if isinstance(node, ast.Call):
        yield node
    if not isinstance(node, (*Function, ast.Lambda)):
        for child in ast.iter_child_nodes(node):
            yield from calls_made(child)


def is_functional(node: ast.expr) -> bool:
    """Whether a name stands for torch's functions rather than for a tensor: ``F``, ``torch.Tensor``."""
    while isinstance(node, ast.Attribute) and module_of(node) is None:
        node = node.value
    return (module_of(node) or "").partition(".")[0] == "torch"


def receiver(call: ast.Call) -> ast.expr | None:
    """The tensor that a method is called on, as a method or as a function: ``x`` of ``x.view(-1)`` and ``torch.flatten(x)``."""
    if isinstance(call.func, ast.Attribute) and not is_functional(call.func.value):
        return call.func.value
    return call.args[0] if call.args else None


def called_name(node: ast.AST | None) -> str:
    """The name of the function or method that an expression calls; nothing where it calls none by name."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def given_to(call: ast.AST | None) -> list[ast.expr]:
    """What a call is given, in positions and by keyword; nothing for what is no call."""
    return [*call.args, *(keyword.value for keyword in call.keywords)] if isinstance(call, ast.Call) else []


def keyword_named(call: ast.Call, name: str) -> ast.keyword | None:
    """The argument that a call is given under this keyword."""
    return next((keyword for keyword in call.keywords if keyword.arg == name), None)


def is_called(code: Code, node: ast.AST) -> bool:
    return getattr(code.parent(node), "func", None) is node


def calls_named(node: ast.AST, *names: str) -> list[ast.Call]:
    """Calls of methods or functions of these names, below the node."""
    return [call for call in calls(node) if called_name(call) in names]


def graph_reads(code: Code, nodes: Iterable[ast.AST], names: set[str]) -> list[ast.Name | ast.Attribute]:
    """Where these names are read for a value that has a history: not for ``x.shape``, nor for what is detached already."""
    return [
        node
        for top in nodes
        for node in ast.walk(top)
        if isinstance(node, ast.Name | ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and dotted(node) in names
        and not (isinstance(above := code.parent(node), ast.Attribute) and above.attr in _WITHOUT_GRAPH)
    ]


def is_number(code: Code, read: ast.expr) -> bool:
    """Whether all that is taken of a tensor is a Python number, or a list of them: ``w.norm().item()``."""
    node: ast.AST | None = read
    while isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
        if isinstance(node, ast.Attribute) and node.attr in ("item", "tolist"):
            return True
        node = code.parent(node)
    return False


def is_call(statement: ast.stmt, *methods: str) -> bool:
    """Whether the statement is nothing but a call of one of these methods."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.value.func, ast.Attribute)
        and statement.value.func.attr in methods
    )


def read_as_number(node: ast.AST | None) -> ast.expr | None:
    """``x`` for ``x.item()`` and ``float(x)``."""
    if not isinstance(node, ast.Call) or node.keywords:
        return None
    if isinstance(node.func, ast.Attribute):
        return node.func.value if node.func.attr == "item" and not node.args else None
    value = node.args[0] if called_name(node) == "float" and len(node.args) == 1 else None
    return None if isinstance(value, ast.Constant) else read_as_number(value) or value


def is_computed_with(around: ast.AST | None) -> bool:
    """Whether what stands around an expression computes a value with it, or makes a tensor of it."""
    return isinstance(around, (ast.BinOp, ast.UnaryOp, ast.AugAssign)) or called_name(around) in ("tensor", "as_tensor")


def is_step(statement: ast.stmt) -> bool:
    """``optimizer.step()``, and what a GradScaler makes of it."""
    return is_call(statement, "step")


def simple(statement: ast.stmt) -> bool:
    """A statement without statements in it."""
    return isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr))

"""Programs put together at random: graphs of views, Functions, checkpoints and hooks, with writes that no graph hears of.

Each is a ``Program`` as those in programs.py, with a wrong form and a twin: the writes are left out of the twin or made
after the last backward. Whether the wrong form is wrong is for the tape (tape.py) to say: a write may hit what no
backward reads.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from .programs import Program

SETUP = "from torch.autograd import Function, grad\nfrom torch.nn import Linear\n"
_LEAVES = {"x": (6,), "w": (3, 3), "v": (3,)}
_UNARY = (
    "torch.tanh({})", "torch.sigmoid({})", "{}.sin()", "({} / 3).exp()", "F.softplus({})", "torch.relu({})",
    "{}.softmax(-1)", "({}.square() + 1).sqrt()", "{} * 0.7", "{} + 0.3", "{}.cumsum(-1) / 2", "F.layer_norm({}, ({last},))",
    "torch.where({} > 0.1, {}, {} * 0.2)", "{}.clamp(-0.8, 0.8)", "1 / ({}.square() + 1)", "{} - {}.mean()",
)  # fmt: skip
_BINARY = (
    "{} - {}",
    "{} * {}",
    "{} + {}",
    "{} / ({}.square() + 1)",
    "torch.lerp({}, {}, 0.3)",
    "torch.addcmul({}, {}, {})",
)
_WRITES = (
    ".mul_(1.5)", ".add_(0.4)", ".mul_(-0.5)", ".clamp_(-0.2, 0.2)", ".copy_(torch.full_like({}, 0.35))", "[..., 0] = 0.7",
    "[..., 1:].mul_(3)", ".view(-1)[:2].fill_(0.25)", ".sigmoid_()", ".mul_(-1).add_(0.1)", "[..., [0, 2]] = -0.6",
)  # fmt: skip

# Past the graph a sum or a copy may be meant so; of numpy's writes there nobody hears (docs/limits.md).
_MEANT = re.compile(r"\.(add_|copy_)")


@dataclass(frozen=True)
class RandomProgram(Program):
    """``due``: the writes that have to be found although only the graph does not know of them."""

    due: frozenset[str] = frozenset()


@dataclass
class _Name:
    """``root``: whose memory it lies in. ``heard``: a graph goes through it. ``viewed``: it has views, or is one."""

    name: str
    shape: tuple[int, ...]
    root: str
    heard: bool = True
    viewed: bool = False
    used: bool = False
    expanded: bool = False


@dataclass
class Composer:
    """Draws the lines of one program."""

    draw: random.Random
    lines: list[str] = field(default_factory=list)
    names: list[_Name] = field(default_factory=list)
    due: set[str] = field(default_factory=set)  # writes past the graph that have to be found
    late: list[str] = field(default_factory=list)  # writes that the twin makes after the last backward
    count: int = 0
    written: set[str] = field(default_factory=set)  # roots
    bends: bool = False  # hooks change gradients on purpose
    reenters: bool = False
    indent: str = ""

    # ---- values

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def put(self, line: str, mark: str = "") -> None:
        self.lines.append(f"{self.indent}{line}{'  ' + mark if mark else ''}")

    def pick(self, shape: tuple[int, ...] | None = None, heard: bool | None = True) -> _Name | None:
        """One of the values so far, a late one rather than an early one."""
        found = [n for n in self.names if shape in (None, n.shape) and heard in (None, n.heard)]
        if not found:
            return None
        return self.draw.choice(found[-4:] if self.draw.random() < 0.7 else found)

    def make(self, text: str, shape: tuple[int, ...], *, of: str = "", heard: bool = True, stem: str = "h") -> _Name:
        name = self.fresh(stem)
        self.put(f"{name} = {text}")
        self.names.append(_Name(name, shape, of or name, heard, bool(of)))
        return self.names[-1]

    def unary(self, name: str, shape: tuple[int, ...]) -> str:
        return self.draw.choice(_UNARY).replace("{last}", str(shape[-1])).replace("{}", name)

    # ---- statements

    def operation(self) -> None:
        one = self.pick()
        assert one is not None
        one.used = True
        other = self.pick(one.shape, self.draw.choice((True, True, None)))
        if other is not None and self.draw.random() < 0.6:
            other.used = True
            text = self.draw.choice(_BINARY[1 if one.root == other.root else 0 :])
            parts = [self.draw.choice((one.name, other.name)) for _ in range(text.count("{}") - 2)]
            self.make(text.format(one.name, other.name, *parts), one.shape)
        elif one.shape[-1] == 3 and self.draw.random() < 0.4:
            matrix = self.pick((3, 3))
            assert matrix is not None
            matrix.used = True
            self.make(f"{one.name} @ {matrix.name}", one.shape)
        else:
            self.make(self.unary(one.name, one.shape), one.shape)

    def view(self) -> None:
        one = self.pick()
        assert one is not None
        forms = {
            (6,): [(".view(2, 3)", (2, 3)), ("[1:4]", (3,)), ("[::2]", (3,))],
            (2, 3): [(".reshape(6)", (6,)), ("[1]", (3,)), ("[0]", (3,)), (".unsqueeze(0)[0]", (2, 3))],
            (3,): [(".expand(2, 3)", (2, 3)), (".view(3)", (3,))],
            (3, 3): [(".t()", (3, 3)), ("[:2]", (2, 3)), (".diagonal()", (3,)), ("[:, 1]", (3,))],
        }[one.shape]
        text, shape = self.draw.choice(forms)
        one.used = one.viewed = True
        made = self.make(one.name + text, shape, of=one.root, stem="p")
        made.expanded = one.expanded or "expand" in text

    def constant(self) -> None:
        shape = self.draw.choice(list(_LEAVES.values()))
        if self.draw.random() < 0.3:
            array = self.fresh("array")
            self.put(f"{array} = numpy.linspace(0.3, 1.2, {self._size(shape)}).reshape({shape})")
            made = self.make(f"torch.from_numpy({array})", shape, of=array, heard=False, stem="c")
        else:
            made = self.make(f"torch.rand({', '.join(map(str, shape))}) + 0.2", shape, heard=False, stem="c")
        one = self.pick(shape)
        if one is not None:
            one.used = made.used = True
            self.make(
                self.draw.choice(("{} * {}", "{} + {}", "torch.tanh({}) / {}")).format(one.name, made.name), shape
            )

    @staticmethod
    def _size(shape: tuple[int, ...]) -> int:
        return shape[0] * (shape[1] if len(shape) > 1 else 1)

    def function(self) -> None:
        one = self.pick()
        assert one is not None
        kind, kept = self.fresh("Own"), self.draw.choice(("saved", "ctx", "list", "dictionary", "output", "closure"))
        other = self.pick(one.shape, False) or self.pick(one.shape, True)
        assert other is not None
        keep, get = {
            "saved": ("ctx.save_for_backward(t, s)", "t, s = ctx.saved_tensors"),
            "ctx": ("ctx.t, ctx.s = t, s", "t, s = ctx.t, ctx.s"),
            "list": ("ctx.kept = [t, s]", "t, s = ctx.kept"),
            "dictionary": ("ctx.kept = dict(t=t, s=s)", "t, s = ctx.kept['t'], ctx.kept['s']"),
            "output": ("ctx.out = out.detach()", "out = ctx.out"),
            "closure": ("", ""),
        }[kept]
        pure, slope = {
            "output": ("(t / 2).exp()", "(g * out / 2, None)"),
            "closure": ("t * s", f"(g * {other.name}.detach(), None)"),
        }.get(kept, ("t * t * s", "(g * 2 * t * s, None)"))
        value = f"t * {other.name}.detach()" if kept == "closure" else pure
        one.used = other.used = True
        for line in (
            f"class {kind}(Function):",
            "    @staticmethod",
            "    def pure(t, s):",
            f"        return {pure}",
            "    @staticmethod",
            "    def forward(ctx, t, s):",
            f"        out = {value}",
            *([f"        {keep}"] if keep else []),
            "        return out",
            "    @staticmethod",
            "    def backward(ctx, g):",
            *([f"        {get}"] if get else []),
            f"        return {slope}",
        ):
            self.put(line)
        passed = other.name if not other.heard else f"{other.name}.detach()"
        self.bends = self.bends or other.heard
        self.make(f"{kind}.apply({one.name}, {passed})", one.shape)

    def checkpointed(self) -> None:
        one = self.pick()
        if one is None or one.name in _LEAVES:
            return
        block, reentrant = self.fresh("block"), self.draw.random() < 0.4
        other = self.pick(one.shape, self.draw.choice((True, False)))
        if reentrant and other is not None and other.heard:  # the inner backward would free its graph
            other = (
                next(n for n in self.names if n.name in _LEAVES and n.shape == one.shape)
                if one.shape != (2, 3)
                else None
            )
        one.used = True
        self.put(f"def {block}(t):")
        self.put(f"    o = {self.unary('t', one.shape)}")
        if self.draw.random() < 0.4:
            self.either(
                "    {}{}", "", ("o += t", "o.mul_(1.5)", "o -= 0.2"), ("o = o + t", "o = o * 1.5", "o = o - 0.2")
            )
        if other is not None and other.name != one.name:
            other.used = True
            self.put(f"    o = o * {other.name}")
        if one.shape[-1] == 3 and self.draw.random() < 0.5:
            self.put("    o = o @ w")
        self.put(f"    return {self.draw.choice(('torch.tanh(o)', '(o / 3).exp()', 'o.sin()'))}")
        self.reenters = self.reenters or reentrant
        self.make(f"checkpoint({block}, {one.name}, use_reentrant={reentrant})", one.shape)

    def repacked(self) -> None:
        if self.indent:
            return
        hooks = self.draw.choice((
            "save_on_cpu()",
            "saved_tensors_hooks(lambda t: t, lambda t: t)",
            "saved_tensors_hooks(lambda t: (t.shape, t.detach()), lambda p: p[1].view(p[0]))",
            "saved_tensors_hooks(lambda t: t.clone(), lambda t: t)",
            "saved_tensors_hooks(lambda t: {'kept': [t.detach()]}, lambda p: p['kept'][0])",
        ))  # fmt: skip
        self.put(f"with {hooks}:")
        self.indent = "    "
        for _ in range(self.draw.choice((1, 2))):
            self.draw.choice((self.operation, self.operation, self.view, self.constant))()
        self.indent = ""

    def hooked(self) -> None:
        one = self.pick()
        assert one is not None
        if one.name in _LEAVES or one.viewed:
            return
        one.viewed = True  # a hook stays with the value, which is not written any more
        self.bends = True
        self.either("{}.register_hook(lambda g: {})", one.name, ("g.mul_(0.3)", "g.neg_()"), ("g.mul(0.3)", "g.neg()"))

    def either(self, text: str, name: str, wrong: Sequence[str], right: Sequence[str]) -> None:
        """A line that may be in its wrong form in the wrong program, and is in its right form in the twin."""
        index = self.draw.randrange(len(wrong))
        if self.draw.random() < 0.5:
            self.put(text.format(name, wrong[index]), "#!")
            self.put(text.format(name, right[index]), "#+")
        else:
            self.put(text.format(name, right[index]))

    def module(self) -> None:
        one = self.pick((2, 3)) or self.pick((3,))
        if one is None:
            return
        net, one.used = self.fresh("net"), True
        self.put(f"{net} = Linear(3, 3)")
        hook = self.draw.choice(
            ("register_full_backward_pre_hook(lambda m, g:", "register_full_backward_hook(lambda m, g, _:")
        )
        bent = self.draw.random() < 0.6
        if bent:
            self.bends = True
            self.either(f"{{}}.{hook} (g[0].{{}},))", net, ("mul_(0.4)", "neg_()"), ("mul(0.4)", "neg()"))
        self.make(f"{net}({one.name})", one.shape).viewed = bent  # torch refuses to write what a hooked module gives
        if self.draw.random() < 0.4:
            self.names.append(_Name(f"{net}.weight", (3, 3), f"{net}.weight", False))

    def in_place(self) -> None:
        """A write that the graph hears of, into a value of its own."""
        one = next((n for n in reversed(self.names) if n.heard and not n.viewed and n.name not in _LEAVES), None)
        if one is not None:
            self.put(self.draw.choice(("{} += 0.2", "{}.mul_(1.2)", "{} *= 0.8")).format(one.name), "#<")

    # ---- writes that no graph hears of

    def write(self) -> None:
        one = self.pick(heard=self.draw.choice((True, True, None)))
        assert one is not None
        if one.expanded:  # torch refuses to write there
            return
        self.written.add(one.root)
        way = self.draw.choice((self._by_call, self._by_call, self._by_call, self._by_numpy, self._by_memory))
        lines = way(one, f"{one.name}.data" if one.heard or self.draw.random() < 0.5 else one.name)
        for line in lines:
            self.put(line, "#!")
        if one.heard and one.root not in _LEAVES and way == self._by_call and not _MEANT.search(lines[-1]):
            self.due.add(f"{lines[-1]}  #!")
        if self.draw.random() < 0.5:
            self.late += lines

    def _by_call(self, one: _Name, data: str) -> list[str]:
        """A call of torch's, on an alias made now or just before."""
        alias = self.draw.choice((data, f"{one.name}.detach()", f"{data}.view({one.name}.shape)", f"{data}.T.T"))
        if self.draw.random() < 0.3:
            name = self.fresh("alias")
            self.put(f"{name} = {alias}")
            alias = name
        change = self.draw.choice(_WRITES).replace("{}", data)
        whole = (f"torch._foreach_mul_([{data}], 1.4)", f"torch.mul({data}, 1.6, out={alias})")
        return [self.draw.choice((alias + change, alias + change, alias + change, *whole))]

    def _by_numpy(self, one: _Name, data: str) -> list[str]:
        """An array of the same memory, or a tensor of that array's."""
        array = self.fresh("array")
        if self.draw.random() < 0.3:
            return [f"torch.from_numpy({one.name}.detach().numpy()){self.draw.choice(_WRITES).replace('{}', data)}"]
        if self.draw.random() < 0.3:
            self.put(f"{array} = torch.from_dlpack({one.name}.detach())")
            return [array + self.draw.choice(_WRITES).replace("{}", data)]
        self.put(f"{array} = numpy.asarray({one.name}.detach())")
        changes = ("{} *= 1.7", "{} += 0.4", "{}[..., 0] = 0.9", "numpy.exp({0}, out={0})")
        return [self.draw.choice(changes).format(array)]

    def _by_memory(self, one: _Name, data: str) -> list[str]:
        """The storage itself, from Python or from C; other memory in its place."""
        storage = f"{data}.untyped_storage()"
        other = f"(torch.ones({storage}.nbytes() // 8) * 0.6).untyped_storage()"
        ways = [
            [f"{storage}.copy_({other})"],
            ["source = torch.full((6,), 0.6)", f"ctypes.memmove({data}.data_ptr(), source.data_ptr(), 8)"],
            [f"{storage}.resize_({storage}.nbytes() + 64)", f"{data}.mul_(0.5)"],
            [
                "{0} = threading.Thread(target=lambda: torch.Tensor.mul_({1}, torch.tensor(2.0)))",
                "{0}.start()",
                "{0}.join()",
            ],
        ]
        if one.name in _LEAVES:
            ways.append([f"{one.name}.data = {data} * 1.3"])
        thread = self.fresh("thread")
        return [line.format(thread, data) for line in self.draw.choice(ways)]

    # ---- the whole

    def loss(self, name: str) -> None:
        sinks = [n for n in self.names if n.heard and not n.used and n.name not in _LEAVES] or self.names[-1:]
        for sink in sinks:
            sink.used = True
        texts = [
            self.draw.choice(("{}.square().sum()", "{}.sum()", "({} * 2).sin().sum()")).format(s.name)
            for s in sinks[-3:]
        ]
        self.put(f"{name} = {' + '.join([*texts, 'x.square().mean() * 0.1'])}")

    def body(self, number: int) -> None:
        kinds = [
            *[self.operation] * 6, *[self.view] * 3, self.constant, self.constant, self.function, self.function,
            self.checkpointed, self.checkpointed, self.repacked, self.hooked, self.module,
        ]  # fmt: skip
        for _ in range(number):
            self.draw.choice(kinds)()
        if self.draw.random() < 0.15:
            self.in_place()

    def backward(self, name: str, last: bool) -> None:
        keep = "" if last else "retain_graph=True"
        if not self.reenters and self.draw.random() < 0.3:
            parts = self.fresh("parts")
            retain = f", {keep}" if keep else ""
            self.put(f"{parts} = grad({name}, [x, w, v], allow_unused=True{retain})")
        else:
            self.put(f"{name}.backward({keep})")


def compose(seed: int) -> RandomProgram:
    """The program of a seed."""
    one = Composer(random.Random(seed))
    one.names = [_Name(name, shape, name, used=True, viewed=True) for name, shape in _LEAVES.items()]
    shape = one.draw.choice(list(_LEAVES))
    one.make(f"{shape} * 1.1", _LEAVES[shape])
    backwards = one.draw.choice((1, 1, 1, 2, 2, 3))
    moments = [one.draw.random() for _ in range(one.draw.choice((1, 2, 2)))]
    for index in range(backwards):
        last = index == backwards - 1
        again = index > 0 and one.draw.random() < 0.4
        if not again:
            one.body(one.draw.randint(2, 5))
            if any(m < 0.25 for m in moments):
                one.write()
            one.body(one.draw.randint(1, 3))
            loss = one.fresh("loss")
            one.loss(loss)
        if any(m >= 0.25 for m in moments) and (last or one.draw.random() < 0.5):
            one.write()
        one.backward(loss, last)
    for change in one.late:
        one.put(change, "#+")
    text = "\n".join(one.lines) + "\n"
    by = "twin" if one.bends else "differences"
    return RandomProgram(f"seed {seed}", text, SETUP, by, due=frozenset(one.due))

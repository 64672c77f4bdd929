"""A session of many kinds of objects, and statements that change them, to be put together into cells at random."""

from __future__ import annotations

import textwrap

from hypothesis import strategies as st

SETUP = """
import collections, functools, io, os, random, sys, warnings
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

w = torch.randn(3, 4, requires_grad=True)
x = torch.randn(2, 3)
v = x[0]
tail = x.view(-1)[2:]
alias = x.detach()
whole = torch.zeros(4, 3)
bare = torch.zeros(3, 3)
ints = torch.arange(6).reshape(2, 3)
sparse = torch.eye(3).to_sparse()
pred = x @ w
loss = pred.pow(2).mean()
named = torch.ones(3); named.note = [1]
kept = torch.ones(2, requires_grad=True); (kept * 3).sum().backward()
net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.ReLU(inplace=True), nn.Linear(4, 1))
sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
adam = torch.optim.AdamW([w], lr=0.1)
fused = torch.optim.Adam(net.parameters(), lr=0.1, fused=True)
sched = torch.optim.lr_scheduler.StepLR(sgd, 2)
scaler = torch.amp.GradScaler("cpu")
emb = nn.Embedding(5, 3, max_norm=1.0)
net(torch.randn(5, 4)).sum().backward(); sgd.step()

items = [x, 1, [2, 3]]
table = {"a": x, "b": {"c": 1}}
seen = {1, 2, "three"}
queue = collections.deque([1, 2, 3], maxlen=4)
order = collections.OrderedDict(a=1, b=2, c=3)
groups = collections.defaultdict(list, a=[1])
buffer = bytearray(b"abc")
array = np.arange(6.0).reshape(2, 3)
part = array[1]
objects = np.array([[1], {2: 3}], dtype=object)
shared = torch.from_numpy(np.ones(3))
text = io.StringIO("some text")
rng = random.Random(3)
generator = torch.Generator().manual_seed(3)
numpy_generator = np.random.default_rng(3)

class Counter:
    total = 0
    history = []
    def __init__(self):
        self.n = 0
        self.log = []
    def add(self, k=1):
        self.n += k
        Counter.total += k
        self.log.append(k)
        return self

class Slotted:
    __slots__ = ("a", "b")

class Special(Counter):
    pass

counter = Counter()
special = Special()
slotted = Slotted(); slotted.a = [1]

def make():
    count = 0
    trail = []
    def bump():
        nonlocal count
        count += 1
        trail.append(count)
        return count
    return bump

bump = make()

def remember(value, memory=[]):
    memory.append(value)
    remember.calls = getattr(remember, "calls", 0) + 1
    return memory

def use_global():
    global setting
    setting = setting + 1
    table["b"]["c"] += 1

setting = 1
twice = functools.partial(remember, 2)
"""


CELLS = {
    "new name": "fresh = 1",
    "rebound name": "setting = 'other'",
    "deleted name": "del setting",
    "in-place arithmetic": "x += 1",
    "write through a view": "v.zero_()",
    "write through an alias": "alias.mul_(2)",
    "write through .data": "w.data.mul_(2)",
    "slice": "x[:, 1] = 5",
    "mask": "x[x > 0] = 0",
    "out=": "torch.add(bare, 1, out=bare)",
    "out= resizes": "torch.add(torch.ones(5, 5), 1, out=bare.resize_(0))",
    "foreach": "torch._foreach_add_([x, bare], 1)",
    "no_grad write to a parameter": "with torch.no_grad(): w.mul_(2)",
    "init": "nn.init.normal_(w)",
    "functional inplace": "F.relu(x, inplace=True)",
    "functional inplace, by place": "F.relu(x, True)",
    "module inplace": "nn.ReLU(inplace=True)(x)",
    "dropout inplace": "F.dropout(x, 0.5, True, True)",
    "numpy view": "x.numpy()[0] = 7",
    "np.asarray of a tensor": "np.asarray(x)[0] = 7",
    "dlpack": "torch.from_dlpack(x).add_(1)",
    "storage fill": "x.untyped_storage().fill_(0)",
    "from_numpy": "shared.add_(1)",
    "imaginary part": "c = torch.zeros(2, dtype=torch.complex64); ints.add_(1)",
    "sparse": "sparse.mul_(2)",
    "data replaced": "w.data = torch.zeros(5, 5)",
    "data replaced by another's": "whole.data = bare",
    "set_": "bare.set_(torch.ones(7))",
    "resize_": "bare.resize_(40)",
    "resize_ to less": "bare.resize_(2)",
    "storage emptied": "bare.untyped_storage().resize_(0)",
    "transpose_": "whole.t_()",
    "unsqueeze_": "v.unsqueeze_(0)",
    "requires_grad_": "bare.requires_grad_()",
    "requires_grad off": "w.requires_grad_(False)",
    "history for a bare leaf": "bare[0] = w[0, :3]",
    "grad set": "w.grad = torch.ones_like(w)",
    "grad dropped": "kept.grad = None",
    "grad added to": "(kept * 2).sum().backward()",
    "grad added to, by function": "torch.autograd.backward((kept * 2).sum())",
    "grad zeroed": "kept.grad.zero_()",
    "backward fills": "(x @ w).sum().backward()",
    "hook": "w.register_hook(lambda g: g * 2)",
    "hook of a tensor with a history": "pred.register_hook(lambda g: g * 2)",
    "write in a hook": "y = kept * 2; y.register_hook(lambda g: [bare.add_(1), None][1]); y.sum().backward()",
    "write in a hook, by grad": "y = kept * 2; y.register_hook(lambda g: [bare.add_(1), None][1]); torch.autograd.grad(y.sum(), kept)",
    "step in a hook": "w.register_post_accumulate_grad_hook(lambda p: adam.step()); (x @ w).sum().backward()",
    "write in a function of one's own": """
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        bare.add_(1)
        return a * 2
    @staticmethod
    def backward(ctx, g):
        whole.add_(1)
        return g * 2
Own.apply(kept).sum().backward()
""",
    "checkpoint": """
def part(a):
    bare.add_(1)
    return a.exp()
torch.utils.checkpoint.checkpoint(part, kept, use_reentrant=False).sum().backward()
torch.utils.checkpoint.checkpoint(part, kept, use_reentrant=True).sum().backward()
""",
    "post-accumulate hook": "w.register_post_accumulate_grad_hook(lambda p: None)",
    "attribute of a tensor": "named.note.append(2); named.other = 1",
    "tensor subclass attribute": "w.mark = 1",
    "forward in train mode": "net(torch.randn(5, 4))",
    "functional batch norm": "F.batch_norm(torch.randn(5, 4), net[1].running_mean, net[1].running_var, training=True)",
    "step": "net(torch.randn(5, 4)).sum().backward(); sgd.step(); sgd.zero_grad()",
    "fused step": "net(torch.randn(5, 4)).sum().backward(); fused.step()",
    "zero_grad": "sgd.zero_grad()",
    "zero_grad in place": "sgd.zero_grad(set_to_none=False)",
    "new optimizer state": "(x @ w).sum().backward(); adam.step()",
    "scheduler": "sgd.step(); sched.step()",
    "scaler": "scaler.scale((x @ w).sum()).backward(); scaler.step(adam); scaler.update()",
    "param group": "adam.param_groups[0]['lr'] = 5; adam.add_param_group({'params': [kept]})",
    "eval": "net.eval()",
    "module attribute": "net.extra = 1; net[0].weight = nn.Parameter(torch.ones(4, 4))",
    "module replaced": "net[0] = nn.Linear(4, 4); del net[2]",
    "buffer": "net.register_buffer('state', torch.ones(2))",
    "module hook": "net.register_forward_hook(lambda *a: None)",
    "module to": "net.double()",
    "module to, and its gradients gone": "net.double(); sgd.zero_grad()",
    "load_state_dict": "net.load_state_dict({k: v * 2 for k, v in net.state_dict().items()})",
    "clip": "torch.nn.utils.clip_grad_norm_(net.parameters(), 0.01)",
    "vector_to_parameters": "nn.utils.vector_to_parameters(torch.zeros(12), [w])",
    "max_norm": "emb(torch.tensor([1, 2]))",
    "list": "items.append(1); items[2].clear(); items.reverse()",
    "dict": "table['z'] = 1; del table['a']; table['b']['c'] = 9",
    "dict order": "table['a'] = table.pop('a')",
    "ordered dict": "order.move_to_end('a')",
    "default dict": "groups['new'].append(1); groups['a'].append(2); groups.default_factory = set",
    "set": "seen.add(9); seen.discard(1)",
    "deque": "queue.extend([7, 8, 9]); queue.rotate(1)",
    "bytearray": "buffer += b'x'; buffer[0] = 0",
    "array": "array[:] = 0",
    "array through a view": "part += 1",
    "array shape": "array.shape = (3, 2)",
    "array of objects": "objects[0].append(2); objects[1] = None",
    "array flag": "array.flags.writeable = False",
    "text in memory": "text.read(3); text.write('x')",
    "object": "counter.add(5); counter.other = 1",
    "class attribute": "Counter.total = 8; Counter.fresh = 1; del Counter.history",
    "inherited": "special.add(); Special.extra = 1",
    "method replaced": "Counter.add = lambda self: None",
    "class of an object": "special.__class__ = Counter",
    "dict of an object": "counter.__dict__ = {'n': 4}",
    "slots": "slotted.a.append(2); slotted.b = 1",
    "slot deleted": "del slotted.a",
    "closure": "bump(); bump()",
    "default argument": "remember(1)",
    "function defaults": "remember.__defaults__ = (3,); remember.__code__ = use_global.__code__",
    "function attribute": "remember.mark = 1",
    "partial": "twice()",
    "global statement": "use_global()",
    "random": "random.random()",
    "numpy random": "np.random.rand()",
    "torch random": "torch.rand(1); torch.manual_seed(5)",
    "own generators": "rng.random(); torch.rand(1, generator=generator); numpy_generator.random()",
    "shuffle": "random.shuffle(items)",
    "grad mode": "torch.set_grad_enabled(False)",
    "anomaly": "torch.autograd.set_detect_anomaly(True)",
    "autocast": "torch.set_autocast_enabled('cpu', True); torch.set_autocast_dtype('cpu', torch.float16)",
    "default dtype": "torch.set_default_dtype(torch.float64)",
    "default device": "torch.set_default_device('meta')",
    "deterministic": "torch.use_deterministic_algorithms(True, warn_only=True)",
    "threads": "torch.set_num_threads(torch.get_num_threads() + 1)",
    "precision": "torch.set_float32_matmul_precision('medium')",
    "print options": "torch.set_printoptions(precision=9); np.set_printoptions(precision=3); np.seterr(all='ignore')",
    "warnings": "warnings.simplefilter('error'); warnings.showwarning = print",
    "stdout": "sys.stdout = io.StringIO(); sys.displayhook = print",
    "path": "sys.path.insert(0, 'x'); sys.argv = ['y']",
    "last error": "sys.last_value = 1; sys.last_type = 2",
    "environment": "os.environ['INPLACE_MAGIC_TEST'] = '1'; os.environ.pop('PATH')",
    "folder": "os.chdir('/')",
    "recursion limit": "sys.setrecursionlimit(5000)",
    "signal": "import signal; signal.signal(signal.SIGUSR1, lambda *a: None); signal.signal(signal.SIGINT, signal.SIG_DFL)",
}


# Left out: what would trouble the test run itself, and what makes torch crash when the tensor is used again.
ALONE = ("signal", "stdout", "folder", "environment", "threads", "storage emptied")
OF_STATEMENTS = [
    *(cell for name, cell in CELLS.items() if name not in ALONE),
    "y = x.exp(); y += 1; y.sum()",
    "hidden = torch.tanh(x @ w); hidden *= 2; hidden.sum().backward()",
    "w.add_(1)",
    "a, b = (w * 2).unbind(0)[:2]; a += 1",
    "row = whole[1]; row.copy_(w[0, :3])",
    "v += w[:, 0]",
    "tail.mul_(w.sum())",
    "items.append(lambda: items); table['f'] = items[-1]",
    "items[2].append(counter.add(2)); counter.log = items",
    "net = nn.Linear(3, 1); net(x).sum().backward()",
    "x = x.clone(); x.mul_(3)",
    "loss.backward(retain_graph=True)",
    "loss.backward()",
    "pred.relu_()",
    "w.grad = None if w.grad is not None else x.new_ones(3, 4)",
    "slotted.a = slotted; counter.me = counter",
    "with torch.no_grad(): w.copy_(torch.zeros(3, 4)); net[0].weight.zero_()",
    "with torch.inference_mode(): z = x * 2; bare.add_(1)",
    "kept.data.fill_(3); kept.grad.data.zero_()",
    "table.clear(); table.update(a=1); order.clear()",
    "exec('x.sub_(1)')",
    "torch.nn.init.xavier_uniform_(net[0].weight) if isinstance(net, nn.Sequential) else None",
]

simple = st.sampled_from(OF_STATEMENTS)


def wrap(inner):
    body = textwrap.indent(inner, "    ")
    return st.sampled_from(
        [
            f"try:\n{body}\nexcept Exception:\n    pass",
            f"try:\n{body}\nfinally:\n    counter.n += 1",
            f"def inside():\n    global x, net, setting\n{body}\ninside()",
            f"with torch.no_grad():\n{body}",
            f"for _ in range(2):\n{body}",
            f"class Local:\n{body}",
            f"with torch.autocast('cpu', dtype=torch.bfloat16):\n{body}",
        ]
    )


statement = st.one_of(simple, simple.flatmap(wrap), simple.flatmap(wrap).flatmap(wrap))

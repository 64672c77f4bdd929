"""Diagnoses of every shape, made by hand, as the earlier stages would make them."""

from __future__ import annotations

import difflib
from typing import Any

from inplace_magic.diagnosis import Conflict, Diagnosis, Fix, LiveChange, Place
from inplace_magic.message import message


def place(cell: int | None, line: int, text: str, part: str = "", **more: Any) -> Place:
    """A line as places hold it, without its indent; ``part`` is the expression that is meant."""
    text = text.strip(" ")
    columns = (text.index(part), text.index(part) + len(part)) if part else None
    return Place(cell, line, text, **{"columns": columns, **more})


def conflict(saved: Place | None, changed: Place | None, needed: Place | None, sentence: str, **more: Any) -> Conflict:
    given = {"tensor": None, "operation": None, "node": None} | more
    return Conflict(changed, saved, needed, sentence=sentence, **given)


def diff(label: str, before: str, after: str) -> str:
    return "\n".join(difflib.unified_diff(before.split("\n"), after.split("\n"), label, label, lineterm="", n=3))


def fix(title: str, diff: str, **more: Any) -> Fix:
    given = {"why": "", "rule": "sample", "cells": {3: "..."}, "verified": True, "gradients": "same"} | more
    return Fix(title=title, diff=diff, **given)


_FORWARD = """def forward(self, x, feature16):
    x = self.up(x)
    x = F.relu(x)
    x += feature16

    return self.head(x)"""

MODIFIED = Diagnosis(
    family="modified",
    headline=message("headline_modified"),
    cell=7,
    seconds=0.41,
    conflicts=(
        conflict(
            place(3, 15, "    x = F.relu(x)", "F.relu(x)"),
            place(3, 16, "    x += feature16"),
            place(7, 5, "loss.backward()"),
            "`+=` overwrote the value that relu had kept for its gradient.",
            tensor="x",
            operation="+=",
            node="ReluBackward0",
            saved_note=message("saves_output", node="relu"),
            changed_note=message("changes"),
            needed_note=message("needs"),
        ),
        conflict(None, place(3, 24, "    y += feature8"), None, ""),
        conflict(None, place(3, 31, "    z += feature4"), None, ""),
    ),
    fixes=(
        fix(
            "`x = x + feature16`",
            diff("In[3]", _FORWARD, _FORWARD.replace("x += feature16", "x = x + feature16")),
            why="The sum becomes a new tensor, and the one that relu kept stays as it was.",
            run=(3, 7),
        ),
        fix(
            "clone what relu gives before it is changed",
            diff("In[3]", _FORWARD, _FORWARD.replace("F.relu(x)", "F.relu(x).clone()")),
            why="relu keeps its own output; the copy may be changed.",
        ),
    ),
)

MODULE = Diagnosis(
    family="modified",
    headline=message("headline_modified"),
    cell=4,
    seconds=1.3,
    conflicts=(
        conflict(
            place(2, 8, "        s = torch.sigmoid(self.conv(x))", "torch.sigmoid(self.conv(x))", function="forward"),
            place(2, 9, "        return self.act(s)", "self.act(s)", function="forward"),
            place(4, 12, "    loss.backward()"),
            "`ReLU(inplace=True)` overwrote the value that sigmoid had kept for its gradient.",
            saved_note=message("saves_output", node="sigmoid"),
            changed_note=message("changes_by", module="net.act"),
        ),
    ),
    fixes=(
        fix(
            "`nn.ReLU(inplace=True)` without `inplace=True`",
            "--- In[2]\n+++ In[2]\n@@ -5 +5 @@\n-        self.act = nn.ReLU(inplace=True)\n+        self.act = nn.ReLU()",
            proof="proved: ran 1 of 40 steps past the failure, gradients equal to 1e-07",
            live=(LiveChange("set", "net.act", "inplace", False),),
            run=(4,),
        ),
    ),
)

SECOND_BACKWARD = Diagnosis(
    family="second_backward",
    headline=message("headline_second_backward"),
    cell=5,
    seconds=0.72,
    conflicts=(
        conflict(
            place(5, 4, "d = D(g)"),
            place(5, 7, "lossD.backward()"),
            place(5, 11, "lossG.backward()"),
            "lossG still goes back through `D(g)`, whose graph lossD.backward() freed.",
            changed_note=message("frees"),
            needed_note=message("needs_graph"),
        ),
    ),
    fixes=(
        fix(
            "detach d in lossG",
            "In[5]\n-lossG = (g + d).sum()\n+lossG = (g + d.detach()).sum()",
            gradients="truncated",
            proof="ran past the failure; cuts the graph: earlier steps get no gradient from here",
            cells={5: "..."},
        ),
        fix(
            "keep the graph: `lossD.backward(retain_graph=True)`",
            "In[5]\n-lossD.backward()\n+lossD.backward(retain_graph=True)",
            gradients="different",
            cells={5: "..."},
        ),
        fix(
            "compute `D(g)` again for lossG",
            "In[5]\n-lossG = (g + d).sum()\n+lossG = (g + D(g)).sum()",
            gradients="unknown",
            proof="ran past the failure; gradients could not be compared",
            cells={5: "..."},
        ),
    ),
)

_AGAIN = "ratio = (dist.log_prob(A) - old_logp).exp()"
CARRIED = Diagnosis(
    family="second_backward",
    headline=message("headline_second_backward"),
    cell=5,
    seconds=0.81,
    conflicts=(
        conflict(
            place(4, 8, "log_probs.append(dist.log_prob(a))", "dist.log_prob(a)"),
            place(5, 6, _AGAIN, "old_logp"),
            place(5, 9, "loss.backward()", "loss.backward()"),
            message("freed_before"),
            saved_note=message("creates_graph"),
            changed_note=message("still_freed", names=("`old_logp`",), count=1),
            needed_note=message(
                "both_with_comma",
                one=message("in_iteration", label=message("frees"), number=1),
                other=message("in_iteration", label=message("needs_graph"), number=2),
            ),
            carries=message("carries_too", names=("`old_value` (In[5]:7)",), count=1),
        ),
    ),
    fixes=(
        fix(
            "sample",
            diff("In[5]", _AGAIN, _AGAIN.replace("old_logp", "old_logp.detach()")),
            gradients="truncated",
            cells={5: "..."},
        ),
    ),
)

LEAF = Diagnosis(
    family="leaf",
    headline=message("headline_leaf"),
    cell=6,
    seconds=0.05,
    conflicts=(
        conflict(
            None,
            place(6, 3, "    w -= lr * w.grad"),
            place(6, 3, "    w -= lr * w.grad"),
            "Autograd starts at w: a write that it records would leave w without a place to put its gradient.",
            changed_note=message("refuses_leaf"),
        ),
    ),
    fixes=(
        fix(
            "update w under `torch.no_grad()`",
            "-    w -= lr * w.grad\n+    with torch.no_grad():\n+        w -= lr * w.grad",
            cells={6: "..."},
        ),
    ),
)

INFERENCE = Diagnosis(
    family="inference",
    headline=message("headline_inference"),
    cell=9,
    seconds=0.2,
    conflicts=(
        conflict(
            place(9, 2, "loss = head(features).mean()"),
            place(8, 3, "    features = backbone(images)"),
            place(9, 2, "loss = head(features).mean()"),
            "features was made under `torch.inference_mode()`, so linear cannot keep it for its gradient.",
            changed_note=message("creates_inference"),
            needed_note=message("refuses_inference"),
        ),
    ),
    fixes=(
        fix(
            "make features under `torch.no_grad()`",
            "--- In[8]\n+++ In[8]\n@@ -2 +2 @@\n-with torch.inference_mode():\n+with torch.no_grad():",
            cells={8: "..."},
            run=(8, 9),
            live=(LiveChange("clone", "features"),),
        ),
    ),
)

SILENT = Diagnosis(
    family="silent",
    headline=message("headline_silent"),
    cell=2,
    seconds=2.0,
    conflicts=(
        conflict(
            place(2, 1, "loss = (x ** 2).sum()"),
            place(2, 3, "x_data += 1"),
            place(2, 4, "loss.backward()"),
            "`x.data` hides the write from autograd: the gradient of `x ** 2` is that of the changed x.",
            saved_note=message("saves", node="`**`"),
            changed_note=message("changes_unseen"),
        ),
    ),
    fixes=(
        fix(
            "write to a copy",
            "--- In[2]\n+++ In[2]\n@@ -2,2 +2,2 @@\n-x_data = x.data\n+x_data = x.detach().clone()\n x_data += 1",
            verified=False,
            gradients="unknown",
        ),
    ),
    notes=("The cell draws from a generator that cannot be put back, so nothing was rerun.",),
)

UNKNOWN = Diagnosis(
    family="modified",
    headline=message("headline_modified"),
    cell=11,
    seconds=0.03,
    conflicts=(
        conflict(
            None,
            None,
            place(None, 218, "self.scaler.scale(loss).backward()", filename="/home/ada/work/segmentation/trainer.py"),
            "A tensor that `CudnnConvolutionBackward0` had kept was changed before backward.",
        ),
    ),
    notes=(
        "The cell was not run again: it reads from a socket, which cannot be put back.",
        "Without a rerun the line that changed the tensor is not known.",
    ),
)

WIDE = Diagnosis(
    family="modified",
    headline="就地修改破坏了反向传播",
    cell=3,
    seconds=0.3,
    conflicts=(
        conflict(
            place(3, 1, "隐藏 = torch.sigmoid(输入 @ 权重)", "torch.sigmoid(输入 @ 权重)"),
            place(3, 2, "隐藏 *= 掩码"),
            place(3, 3, "损失.backward()"),
            "`*=` overwrote the value that sigmoid had kept for its gradient.",
            saved_note=message("saves_output", node="sigmoid"),
            changed_note=message("changes"),
        ),
    ),
    fixes=(fix("`隐藏 = 隐藏 * 掩码`", "In[3]\n-隐藏 *= 掩码\n+隐藏 = 隐藏 * 掩码"),),
)

_LONG = "out = model(" + ", ".join(f"stage_{i}_features" for i in range(30)) + ").relu_()"
HOSTILE = Diagnosis(
    family="modified",
    headline="In-place change <b>broke</b> & the \x1b[31mbackward",
    cell=3,
    seconds=12.4,
    conflicts=(
        conflict(
            place(3, 1, "s = '</code><script>alert(1)</script>\x1b]0;owned\x07'"),
            place(3, 2, "if access != 'user\u202e \u2066# admin\u2069 \u2066':\t\ud800"),
            place(None, 3, _LONG, filename="<img src=x onerror=alert(2)>.py"),
            "`<svg onload=alert(3)>` and a lone ` and [bold]markup[/bold] :smile:\r\n  overwrote\x00 it.",
            changed_note='" onmouseover="alert(4)',
        ),
    ),
    fixes=(
        fix(
            "</summary><iframe src='javascript:alert(5)'>",
            f"In[3]\n-{_LONG}\n+{_LONG[:-1]}\x1b[2J\n+s = '</pre><style>*{{display:none}}</style>'",
            proof="<object data=x>",
            why="</p><form action=x>",
            live=(LiveChange("set", "net[`<a href=x>`]", "inplace", False),),
        ),
        fix("[link=http://x]second[/link]", "-a\n+b", verified=False, gradients="unknown", proof="Proved & verified"),
    ),
    notes=("<marquee>\u2028note</marquee>",),
)


def refused(family: str, cell: int, line: int, text: str, part: str, tensor: str, fixed: str, **more: Any) -> Diagnosis:
    """A write that was refused, and its fix."""
    written = place(cell, line, text, part)
    kind = f"refused_{family}"
    sentence = message(kind, what=f"`{part}`", tensor=tensor)
    return Diagnosis(
        family=family,
        headline=message(f"headline_{family}"),
        cell=cell,
        seconds=0.3,
        conflicts=(
            conflict(None, written, written, sentence, changed_note=message(f"refuses_{family}"), tensor=tensor),
        ),
        fixes=(fix("sample", diff(f"In[{cell}]", text, fixed), cells={cell: fixed}, **more),),
    )


VIEW_OF_LEAF = refused(
    "view_of_leaf", 4, 2, "weight[0] -= 0.1 * gradient", "weight[0] -= 0.1 * gradient", "weight",
    "with torch.no_grad():\n    weight[0] -= 0.1 * gradient",
)  # fmt: skip
MULTI_OUTPUT_VIEW = refused(
    "multi_output_view", 5, 7, "first.mul_(scale)", "first.mul_(scale)", "first", "first = first.mul(scale)"
)
NO_GRAD_VIEW = refused(
    "no_grad_view", 5, 3, "crop += noise", "crop += noise", "crop", "crop = crop + noise", gradients="different"
)
OVERLAP = refused(
    "overlap", 2, 9, "mask = mask.masked_fill_(padding, 0.0)", "mask.masked_fill_(padding, 0.0)", "mask",
    "mask = mask.masked_fill(padding, 0.0)",
)  # fmt: skip
OUT_GRAD = refused(
    "out_grad", 3, 4, "torch.add(residual, hidden, out=hidden)", "torch.add(residual, hidden, out=hidden)", "hidden",
    "hidden = torch.add(residual, hidden)",
)  # fmt: skip

_LOOP = "state = new_state"
LOOP = Diagnosis(
    family="modified",
    headline=message("headline_modified"),
    cell=6,
    seconds=0.62,
    conflicts=(
        conflict(
            place(6, 4, "out, new_state = rnn(xs[i], state)", "rnn(xs[i], state)"),
            place(6, 7, "opt.step()", "opt.step()"),
            place(6, 6, "loss.backward(retain_graph=True)", "loss.backward(retain_graph=True)"),
            message("overwrote_of", what="`opt.step()`", tensor="rnn.weight_hh_l0", node="`nn.Linear`"),
            saved_note=message("in_iteration", label=message("saves", node="`nn.Linear`"), number=1),
            changed_note=message("in_iteration", label=message("changes_tensor", tensor="rnn.weight_hh_l0"), number=1),
            needed_note=message("in_iteration", label=message("needs"), number=2),
            carries=message("carries", name="state", when=message("when_iteration", number=1)),
        ),
    ),
    fixes=(
        fix(
            "sample",
            diff("In[6]", _LOOP, _LOOP + ".detach()"),
            gradients="truncated",
            cells={6: "..."},
            untrained=("rnn.bias_hh_l0",),
        ),
    ),
)

_MODULE = "import torch\n\n\ndef grow(x):\n    x += 1\n    return x\n"
FILE = Diagnosis(
    family="modified",
    headline=message("headline_modified"),
    cell=3,
    seconds=0.51,
    conflicts=(
        conflict(
            place(3, 2, "y = grow(w.exp())", "w.exp()"),
            place(None, 5, "x += 1", "x += 1", filename="growth.py", function="grow"),
            place(3, 3, "y.sum().backward()", "y.sum().backward()"),
            message("overwrote", what="`+=`", node="exp"),
            saved_note=message("saves_output", node="exp"),
            changed_note=message("changes"),
            needed_note=message("needs"),
        ),
    ),
    fixes=(
        fix(
            "sample",
            diff("growth.py", _MODULE, _MODULE.replace("x += 1", "x = x + 1")),
            cells={},
            files={"growth.py": _MODULE.replace("x += 1", "x = x + 1")},
        ),
    ),
    files={"growth.py": _MODULE},
)

_ATTENTION = (
    "scores = torch.softmax(query @ key.transpose(-2, -1) / math.sqrt(query.size(-1)), dim=-1).masked_fill_(mask, 0.0)"
)
LONG = Diagnosis(
    family="modified",
    headline=message("headline_modified"),
    cell=8,
    seconds=1.1,
    conflicts=(
        conflict(
            place(8, 12, _ATTENTION, _ATTENTION[9:].partition(".masked")[0]),
            place(8, 12, _ATTENTION, ".masked_fill_(mask, 0.0)"),
            place(8, 31, "loss.backward()", "loss.backward()"),
            message("overwrote", what="`masked_fill_()`", node="softmax"),
            saved_note=message("saves_output", node="softmax"),
            changed_note=message("changes"),
            needed_note=message("needs"),
        ),
    ),
    fixes=(fix("sample", diff("In[8]", _ATTENTION, _ATTENTION.replace("fill_", "fill")), cells={8: "..."}),),
)

NO_RERUN = Diagnosis(
    family="modified",
    headline=message("headline_modified"),
    cell=11,
    seconds=0.1,
    conflicts=(
        conflict(
            None,
            None,
            place(11, 40, "scaler.scale(loss).backward()", "scaler.scale(loss).backward()"),
            message("stale_memory", node="sigmoid", names=("gate", "self.gate")),
            needed_note=message("needs_versions", node="sigmoid", saved=1, now=2),
        ),
    ),
    notes=(
        message(
            "not_rerun_watch",
            what=message("the_cell"),
            reason=message("timed_out", seconds=20.0),
            basis=message("basis_graph"),
        ),
    ),
)

ALL = {
    "view_of_leaf": VIEW_OF_LEAF,
    "multi_output_view": MULTI_OUTPUT_VIEW,
    "no_grad_view": NO_GRAD_VIEW,
    "overlap": OVERLAP,
    "out_grad": OUT_GRAD,
    "loop": LOOP,
    "file": FILE,
    "long": LONG,
    "no_rerun": NO_RERUN,
    "modified": MODIFIED,
    "module": MODULE,
    "second_backward": SECOND_BACKWARD,
    "carried": CARRIED,
    "leaf": LEAF,
    "inference": INFERENCE,
    "silent": SILENT,
    "unknown": UNKNOWN,
    "wide": WIDE,
    "hostile": HOSTILE,
}

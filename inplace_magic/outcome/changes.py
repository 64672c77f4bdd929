"""What differs between what two runs leave behind, each difference as one clause. Nothing here imports torch.

Differences are found in one pair of runs and may be worded from another: where the gradients themselves differ, the
pair that is compared is one in which no gradient has any effect, and the numbers a person reads are those of a plain
run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ..message import message
from .kept import Outcome, Value

_SHOWN = 4
_RELATIVE, _OF_SCALE, _ABSOLUTE = 1e-3, 1e-5, 1e-6
_TRAINED = 2e-2  # relative: an optimizer may enlarge what is rounding in its gradients
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
# What reads otherwise in every run, or tells of the graph and not of the values; what %time and %timeit measure is alike
# in two runs now and then, where a clock is coarse.
_NO_VALUE = re.compile(
    r"0x[0-9a-fA-F]{6,}|,\s*(?:grad_fn=<[^>]*>|requires_grad=True)|^(?:CPU times|Wall time): .*|^\S+ \S?s ± .* per loop .*"
)

Kind = Literal[
    "line", "lines", "missing", "value", "items", "not_leaf", "no_gradient", "gradient", "ahead", "optimizer", "random"
]


@dataclass(frozen=True)
class Difference:
    """One thing that differs. ``path`` is what it concerns; ``line`` the printed line, counted from 0."""

    kind: Kind
    path: str = ""
    line: int = -1


def differences(
    reference: Outcome,
    tried: Outcome,
    gradients: bool = True,
    to_the_letter: bool = False,
    stepped: Container[str] = (),
    exactly: bool = False,
) -> tuple[Difference, ...]:
    """What a person would read otherwise after ``tried``, the most telling first.

    ``gradients``: the values in ``.grad`` count as well, but for leaves that an optimizer holds, or held (``stepped``): it
    clears them before it uses them again. ``exactly``: the gradients of the two are bit for bit the same, so that an optimizer
    has no rounding to enlarge. ``to_the_letter``: a printed number counts however little it
    differs, as of two runs of one code; a time may come close to another one by chance. Names that only ``tried`` has
    do not count.
    """
    found = [
        *_printed(reference.printed, tried.printed, to_the_letter),
        *_values(reference, tried, _RELATIVE if exactly else _TRAINED),
        *_leaves(reference, tried, gradients, stepped),
    ]
    found += _ahead(reference, tried)
    # A generator that one run alone has loaded is seeded by chance, as it would be without a fix.
    if any(tried.random.get(name, state) != state for name, state in reference.random.items()):
        found.append(Difference("random"))
    return tuple(found)


def _printed(before: str, now: str, to_the_letter: bool) -> Iterator[Difference]:
    left, right = _lines(before), _lines(now)
    if len(left) != len(right):
        yield Difference("lines")
        return
    for i, (one, other) in enumerate(zip(left, right)):
        if one != other and (to_the_letter or not same_line(one, other)):
            yield Difference("line", line=i)


def same_line(one: str, other: str) -> bool:
    """Whether two printed lines say the same: numbers are compared as numbers, addresses not at all."""
    one, other = _NO_VALUE.sub("", one), _NO_VALUE.sub("", other)
    if one == other:
        return True
    if _NUMBER.sub("#", one).split() != _NUMBER.sub("#", other).split():
        return False
    pairs = zip(_NUMBER.findall(one), _NUMBER.findall(other))
    return all(a == b or _near_as_printed(a, b) for a, b in pairs)


def _near_as_printed(a: str, b: str) -> bool:
    """Up to one and a half units of the last place that is printed."""
    places = [len(x.split(".")[1]) if "." in x and "e" not in x.lower() else None for x in (a, b)]
    if None in places:
        return "e" in (a + b).lower() and math.isclose(float(a), float(b), rel_tol=_RELATIVE)
    unit = 10.0 ** -min(p for p in places if p is not None)
    return abs(float(a) - float(b)) <= max(1.5 * unit, _RELATIVE * max(abs(float(a)), abs(float(b))))


def _lines(text: str) -> list[str]:
    """Without what a carriage return has overwritten, as a progress bar does."""
    return [line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.splitlines()]


def _values(reference: Outcome, tried: Outcome, trained: float) -> Iterator[Difference]:
    settled: list[str] = []  # below these paths nothing more is said
    for path, before in reference.values.items():
        if any(_below(path, above) for above in settled[-3:]):
            continue
        now = tried.values.get(path)
        if now is None:
            settled.append(path)
            if "." not in path and "[" not in path:
                yield Difference("missing", path)
            continue
        if _are_several(before, now) and before.shape != now.shape:
            settled.append(path)
            yield Difference("items", path)
            continue
        leaf = reference.leaves.get(path)
        if not same_value(before, now, trained if leaf is not None and leaf.optimizers else _RELATIVE):
            settled.append(path)
            yield Difference("value", path)


def _are_several(*values: Value) -> bool:
    return all(value.kind in ("items", "numbers") for value in values)


def _below(path: str, above: str) -> bool:
    return path.startswith(above) and path[len(above) : len(above) + 1] in (".", "[")


def same_value(before: Value, now: Value, relative: float = _RELATIVE) -> bool:
    """Whether a person would read the same. A number and a tensor that holds one number are one thing."""
    if before.digest is None or now.digest is None:
        return before.shape == now.shape
    if before.kind == "text" or now.kind == "text" or before.text != now.text:
        return before.kind == now.kind and before.text == now.text
    if len(before.digest) != len(now.digest):
        return False
    scale = max((abs(x) for x in (*before.digest, *now.digest) if math.isfinite(x)), default=0.0)
    return all(_near(a, b, relative, scale) for a, b in zip(before.digest, now.digest))


def _near(a: float, b: float, relative: float, scale: float) -> bool:
    if not (math.isfinite(a) and math.isfinite(b)):
        return a == b or (math.isnan(a) and math.isnan(b))
    slack = (relative / _RELATIVE) * _OF_SCALE * scale
    return abs(a - b) <= relative * max(abs(a), abs(b)) + slack + _ABSOLUTE


def _leaves(reference: Outcome, tried: Outcome, gradients: bool, stepped: Container[str]) -> Iterator[Difference]:
    for path, before in reference.leaves.items():
        now = tried.leaves.get(path)
        if now is None:
            if path in tried.values:
                yield Difference("not_leaf", path)
            continue
        if not set(before.optimizers) <= set(now.optimizers):
            yield Difference("optimizer", path)
        held = bool(before.optimizers) or path in stepped
        if before.gradient is not None and now.gradient is None:
            yield Difference("no_gradient", path)
        elif (before.gradient is None and now.gradient is not None) or (
            gradients and not held and not _same_gradient(before.gradient, now.gradient)
        ):
            yield Difference("gradient", path)


def _ahead(reference: Outcome, tried: Outcome) -> Iterator[Difference]:
    """What a backward to come gives otherwise, to the leaves that both runs have."""
    for path, before in reference.ahead.items():
        if before is None or path not in tried.ahead:
            continue
        now = tried.ahead[path]
        if now is None or any(not _same_gradient(before[leaf], now[leaf]) for leaf in before.keys() & now.keys()):
            yield Difference("ahead", path)


def _same_gradient(before: tuple[float, ...] | None, now: tuple[float, ...] | None) -> bool:
    if before is None or now is None:
        return before is now
    return same_value(Value("tensor", (), before), Value("tensor", (), now))


def clauses(found: Sequence[Difference], reference: Outcome, tried: Outcome) -> tuple[str, ...]:
    """Each difference in a clause, the numbers as these two runs have them; of what belongs together the first."""
    said: dict[tuple[str, str], str] = {}
    pairs: set[tuple[object, object]] = set()
    values: dict[tuple[str, str], set[tuple[object, object]]] = {}  # of each group, one of several names counted once
    for one in found:
        if one.kind in ("value", "items"):
            values.setdefault(_group(one), set()).add((reference.values.get(one.path), tried.values.get(one.path)))
    for one in found:
        group = _group(one)
        if group in said:
            continue
        if one.kind == "value":  # two names for one thing
            pair = reference.values.get(one.path), tried.values.get(one.path)
            if pair in pairs:
                continue
            pairs.add(pair)
        clause = _clause(one, found, reference, tried)
        more = len(values[group]) - 1 if group[0] == "value" else 0
        said[group] = message("change_and_more", clause=clause, count=more) if more else clause
    texts = list(dict.fromkeys(said.values()))
    if len(texts) > _SHOWN:
        texts = [*texts[: _SHOWN - 1], message("change_more", count=len(texts) - _SHOWN + 1)]
    return tuple(texts)


_GROUP = {"line": "printed", "lines": "printed", "items": "value"}


def _group(one: Difference) -> tuple[str, str]:
    """What belongs together: of one kind, and of one name."""
    return _GROUP.get(one.kind, one.kind), re.split(r"[.\[]", one.path)[0]


def _clause(one: Difference, found: Sequence[Difference], reference: Outcome, tried: Outcome) -> str:
    if one.kind in ("line", "lines"):
        return _printed_clause(one, _lines(reference.printed), _lines(tried.printed))
    if one.kind == "missing":
        return message("change_missing", name=one.path)
    if one.kind in ("value", "items"):
        return _value_clause(one.path, reference.values.get(one.path), tried.values.get(one.path))
    if one.kind == "random":
        return message("change_random")
    if one.kind == "ahead":
        fails = tried.ahead.get(one.path) is None
        return message("change_ahead_fails" if fails else "change_ahead", name=one.path)
    if one.kind == "not_leaf":
        return message("change_not_leaf" if one.path in tried.computed else "change_no_grad", name=one.path)
    if one.kind == "optimizer":
        before, now = reference.leaves.get(one.path), tried.leaves.get(one.path)
        gone = set(before.optimizers if before else ()) - set(now.optimizers if now else ())
        return message("change_optimizer", name=one.path, optimizer=min(gone, default="?"))
    more = sum(other.kind == one.kind for other in found) - 1
    if one.kind == "no_gradient":
        return (
            message("change_grad_none_of", name=one.path, count=more)
            if more
            else message("change_grad_none", name=one.path)
        )
    return message("change_grad_some" if _had_none(one.path, reference) else "change_grad", name=one.path)


def _had_none(path: str, reference: Outcome) -> bool:
    leaf = reference.leaves.get(path)
    return leaf is None or leaf.gradient is None


def _printed_clause(one: Difference, before: list[str], now: list[str]) -> str:
    if one.kind == "lines" or not (one.line < len(before) and one.line < len(now)):
        return message("change_lines", before=len(before), now=len(now))
    left, right = before[one.line].strip(), now[one.line].strip()
    numbers = list(zip(_NUMBER.findall(left), _NUMBER.findall(right)))
    if _NUMBER.sub("#", left).split() == _NUMBER.sub("#", right).split():
        other = [(a, b) for a, b in numbers if a != b and not _near_as_printed(a, b)]
        if other:
            return message("change_prints", before=_rounded(other[0][0]), now=_rounded(other[0][1]))
    if left == right:  # the pair of runs that is worded from agrees here
        return message("change_printed")
    return message("change_prints", before=f"'{_cut(left)}'", now=f"'{_cut(right)}'")


def _value_clause(path: str, before: Value | None, now: Value | None) -> str:
    if before is None or now is None:
        return message("change_values", name=path)
    if _are_several(before, now) and before.shape != now.shape:
        return message("change_items", name=path, before=before.shape[0], now=now.shape[0])
    shown = _shown(before), _shown(now)
    if None in shown or shown[0] == shown[1]:
        return message("change_values", name=path)
    return message("change_value", name=path, before=shown[0], now=shown[1])


def _shown(value: Value) -> str | None:
    """A short text for what is one number or a short string."""
    if value.kind == "text":
        return repr(_cut(value.text)) if value.text != "None" else "None"
    if value.digest is not None and len(value.digest) == 1 and value.kind in ("number", "tensor"):
        return f"{value.digest[0]:.4g}"
    return None


def _rounded(number: str) -> str:
    return number if len(number) <= 8 else f"{float(number):.4g}"


def _cut(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def without(found: Collection[Difference], noise: Collection[Difference]) -> tuple[Difference, ...]:
    """``found`` without what two runs of one and the same text do not agree on either."""
    unsteady = {one.kind for one in noise} & {"lines", "random"}
    gone = set(noise)
    return tuple(
        one
        for one in found
        if one not in gone and one.kind not in unsteady and not (one.kind == "line" and "lines" in unsteady)
    )


def updated(outcome: Outcome, inert: Outcome) -> frozenset[str]:
    """The paths of the parameters that have other values than in a run in which no gradient had an effect."""
    named = (path for path, leaf in outcome.leaves.items() if leaf.parameter)
    values, untouched = outcome.values, inert.values
    return frozenset(path for path in named if path in untouched and values.get(path) != untouched[path])

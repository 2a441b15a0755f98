"""Two logs of one callable, at two sizes, read side by side: what becomes of the rows in every tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..state import same_bits
from . import operators
from .log import Log, Seen, Step
from .rules import is_view, rule_for
from .tags import Applied, Leak, Mixes, Operand, Rows, Tag

_HARMLESS = frozenset({"aten::_assert_tensor_metadata"})
"""Operators that look at shapes and types only."""

UNKNOWN = "is not known to keep the rows of {dim} apart"


class Stopped(Exception):
    """Nothing further can be said: an operator that ends the analysis, and why."""

    def __init__(self, operator: str, reason: str) -> None:
        super().__init__(reason)
        self.leak = Leak(operator, reason)


@dataclass
class Memory:
    """One storage."""

    has_rows: bool
    """Whether its places belong to rows; what has none is the same in both runs."""
    lasting: bool
    """Whether it is there after the call: the module's, or an argument's."""
    leak: Leak | None = None
    written: bool = False
    blank: bool = False
    """Whether nothing is written to it that is known of."""


@dataclass
class Value:
    """One tensor: its rows as an operator gave them, where it lies, which operator made it."""

    tag: Tag
    seen: Seen
    maker: str


@dataclass(frozen=True)
class Pair:
    """One step in both runs."""

    first: Step
    second: Step

    @property
    def steps(self) -> tuple[Step, Step]:
        return self.first, self.second


class Follower:
    """Carries tags through two logs, step by step."""

    def __init__(self, logs: tuple[Log, Log], sizes: tuple[int, int], dim: str) -> None:
        self.dim = dim
        self._logs, self._sizes = logs, sizes
        self._values: dict[int, Value] = {}
        self._memory: dict[int, Memory] = {}

    def argument(self, first: Seen, second: Seen, rows: Rows | None) -> None:
        """Take an argument of the call in."""
        self._keep(first, rows, "the call")
        self._memory[first.storage].lasting = True
        if (first.number, first.storage) != (second.number, second.storage):
            raise Stopped("", "the two calls share memory between arguments in different ways")

    def run(self) -> None:
        """Read both logs to their ends.

        Raises:
            Stopped: where nothing can be said about what follows.
        """
        first, second = (log.steps for log in self._logs)
        for one, other in zip(first, second, strict=False):
            if one.name != other.name:
                raise Stopped(one.name, f"runs {other.name} in its place at another size of {self.dim}")
            self._step(Pair(one, other))
        if len(first) != len(second):
            longer = max(first, second, key=len)
            raise Stopped(longer[min(len(first), len(second))].name, f"runs at one size of {self.dim} only")

    def tag(self, first: Seen, second: Seen) -> Tag:
        """What is known of a tensor now."""
        if first.number != second.number or first.storage != second.storage:
            raise Stopped("", f"takes or gives another tensor at another size of {self.dim}")
        if first.number not in self._values:
            self._from_outside(first.number)
        value = self._values[first.number]
        memory = self._memory[value.seen.storage]
        if memory.leak is not None:
            return memory.leak
        if (first.storage, first.shape, first.layout) != (value.seen.storage, value.seen.shape, value.seen.layout):
            return Leak(value.maker, "gives a tensor that is changed beside all operators")
        if isinstance(value.tag, Rows) and memory.written:
            return value.tag.plain
        return value.tag

    def result(self, first: Seen, second: Seen) -> Tag:
        """What is known of a tensor that the call returns."""
        tag = self.tag(first, second)
        return self._blank(first) or tag

    def maker(self, seen: Seen) -> str:
        """The operator that made a tensor."""
        return self._values[seen.number].maker

    def _from_outside(self, number: int) -> None:
        one, other = (log.outside.get(number) for log in self._logs)
        if one is None or other is None:
            raise Stopped("", f"a tensor comes from outside at one size of {self.dim} only")
        seen = one.seen
        if seen.storage < 0:
            self._keep(seen, Leak("", "a tensor is not strided"), "outside")
            return
        known = self._memory.get(seen.storage)
        if known is not None and (known.has_rows or known.leak):
            # A detached alias, `x.data` say: the same tensor if it lies in the same places.
            where = (seen.storage, seen.shape, seen.layout)
            found = [v for v in self._values.values() if (v.seen.storage, v.seen.shape, v.seen.layout) == where]
            leak = Leak("torch.Tensor.data", "is an alias that no operator made")
            self._keep(seen, found[0].tag if found else leak, "torch.Tensor.data")
            return
        if one.value is not other.value:
            alike = one.value.shape == other.value.shape and one.value.dtype == other.value.dtype
            if not alike or not same_bits(one.value, other.value):
                raise Stopped("torch.tensor", f"holds values that follow {self.dim}")
        self._keep(seen, None, "outside")
        self._memory[seen.storage].lasting = True

    def _keep(self, seen: Seen, tag: Tag, maker: str) -> None:
        self._values[seen.number] = Value(tag, seen, maker)
        if seen.storage not in self._memory:
            leak = tag if isinstance(tag, Leak) else None
            self._memory[seen.storage] = Memory(isinstance(tag, Rows), False, leak)

    def _step(self, pair: Pair) -> None:
        name = pair.first.name
        tags = self._taken(pair)
        depends = any(tag is not None for tag in tags)
        rule = rule_for(pair.first.func)
        leak = next((tag for tag in tags if isinstance(tag, Leak)), None) or self._reads_blank(pair)
        if rule is not None and not rule.values and not pair.first.after:
            leak = None
        if not operators.is_operator(pair.first.func):
            if pair.first.func is not None:
                raise Stopped(name, self._unknown())
            if depends:
                raise Stopped(name, f"takes values of {self.dim} out of tensors")
            return
        if depends and _hands_out(pair.first):
            raise Stopped(name, f"lets a value or a condition depend on the rows of {self.dim}")
        if len(pair.first.results) != len(pair.second.results):
            leak = leak or Leak(name, f"gives as many results as {self.dim} says")
            raise Stopped(leak.operator, leak.reason)
        self._settle(pair, leak, depends)

    def _taken(self, pair: Pair) -> list[Tag]:
        """The tags of a step's arguments."""
        both = _values_of(pair.first), _values_of(pair.second)
        if len(both[0]) != len(both[1]):
            raise Stopped(pair.first.name, f"is called in another form at another size of {self.dim}")
        try:
            return [tag for each in zip(*both, strict=True) for tag in self._tags(each)]
        except Stopped as stop:
            raise Stopped(stop.leak.operator or pair.first.name, stop.leak.reason) from None

    def _reads_blank(self, pair: Pair) -> Leak | None:
        """Whether a step reads memory that nothing was written to, unless by a kernel that is no operator."""
        if is_view(pair.first.func, rule_for(pair.first.func)):
            return None
        written = {seen.number for seen in pair.first.after.values()}
        read = [seen for seen in _flat(_values_of(pair.first)) if seen.number not in written]
        return next((leak for seen in read if (leak := self._blank(seen))), None)

    def _blank(self, seen: Seen) -> Leak | None:
        value = self._values[seen.number]
        if self._memory[value.seen.storage].blank and 0 not in seen.shape:
            return Leak(value.maker, "gives memory that no operator writes to before it is read")
        return None

    def _tags(self, both: tuple[Any, Any]) -> list[Tag]:
        first, second = both
        if isinstance(first, Seen) and isinstance(second, Seen):
            return [self.tag(first, second)]
        if isinstance(first, tuple) and isinstance(second, tuple):
            if len(first) == len(second):
                return [tag for each in zip(first, second, strict=True) for tag in self._tags(each)]
            raise Stopped("", f"is given as many values as {self.dim} says")
        if isinstance(first, Seen) or isinstance(second, Seen):
            raise Stopped("", f"a tensor is given to an operator at one size of {self.dim} only")
        return []

    def _settle(self, pair: Pair, leak: Leak | None, depends: bool) -> None:
        """Tags for what a step gives and writes."""
        name = pair.first.name
        targets = _targets(pair)
        tags: list[Tag]
        if leak is not None:
            tags = [leak] * len(targets)
        else:
            try:
                tags = self._applied(pair, targets, depends)
            except Mixes as problem:
                tags = [Leak(name, str(problem))] * len(targets)
        rule = rule_for(pair.first.func)
        views = is_view(pair.first.func, rule)
        before = {key: memory.has_rows or memory.leak is not None for key, memory in self._memory.items()}
        for (first, second, written), tag in zip(targets, tags, strict=True):
            if first.storage != second.storage or first.number != second.number:
                raise Stopped(name, f"gives the same memory again at one size of {self.dim} only")
            if written is None:
                known = first.storage in before and not views and not _same(self._values.get(first.number), first)
                if known and (isinstance(tag, Rows) or (tag is None and before[first.storage])):
                    tag = Leak(name, "gives memory that is another tensor's")
                self._keep(first, tag, name)
                if rule is not None and not rule.fills and first.storage not in before:
                    self._memory[first.storage].blank = True
            elif operators.changes_layout(pair.first.func):
                self._keep(first, tag, name)
            else:
                self._write(written, first, tag, name)

    def _write(self, before: Seen, after: Seen, tag: Tag, name: str) -> None:
        memory, value = self._memory[before.storage], self._values[before.number]
        memory.written, memory.blank = True, False
        if isinstance(tag, Leak):
            leak: Leak | None = tag
        elif isinstance(value.tag, Leak):
            leak = value.tag
        elif (before.storage, before.shape, before.layout) != (after.storage, after.shape, after.layout):
            leak = Leak(name, "gives a tensor other memory")
        elif not memory.has_rows and (tag is not None or value.tag is not None):
            leak = Leak(name, f"writes rows of {self.dim} into a tensor that does not follow it")
        elif _plain(tag) != _plain(value.tag):
            leak = Leak(name, f"writes into rows of {self.dim} what belongs to others")
        else:
            leak = None
        if leak is not None:
            memory.leak = memory.leak or leak
            if memory.lasting:
                raise Stopped(leak.operator, f"{leak.reason}; it is written to a tensor that outlives the call")

    def _applied(self, pair: Pair, targets: list[Target], depends: bool) -> list[Tag]:
        """The tags that the operator's rule gives, checked against the shapes of both runs."""
        func = pair.first.func
        rule = rule_for(func)
        bound = [_bound(step) for step in pair.steps]
        differing = [key for key in bound[0] if not _same_value(bound[0][key], bound[1][key])]
        shapes = [(first.shape, second.shape) for first, second, _ in targets]
        if operators.can_be_random(func) and not (rule and rule.is_fixed(bound[0])):
            raise Mixes("draws random numbers")
        if not depends and not differing and all(one == other for one, other in shapes):
            return [None] * len(targets)
        if rule is None:
            raise Mixes(self._unknown())
        self._refuse_numbers(bound, [key for key in differing if key not in rule.varying])
        following = [_following(one, other, self.dim) for one, other in shapes]
        long = [first.dtype in (torch.int64, torch.int32) for first, _, _ in targets]
        found = []
        for side, size in enumerate(self._sizes):
            args = {key: self._operands(value, pair, side) for key, value in bound[side].items()}
            results = [shape[side] for shape in shapes]
            applied = Applied(operators.base_name(func), self.dim, size, args, results, following, long)
            found.append(rule.results(applied))
        tags: list[Tag] = []
        for index, (one, other) in enumerate(zip(*found, strict=True)):
            tags.append(self._checked(pair.first.name, one, other, shapes[index], following[index]))
        return tags

    def _refuse_numbers(self, bound: list[dict[str, Any]], names: list[str]) -> None:
        for key in names:
            one, other = bound[0][key], bound[1][key]
            sizes = f"at {self.dim}={self._sizes[0]} and {self._sizes[1]}"
            raise Mixes(f"is given a number that follows {self.dim} ({key} is {one} and {other} {sizes})")

    def _checked(
        self, name: str, one: Rows | str | None, other: Rows | str | None, shapes: tuple[Any, Any], axis: int | None
    ) -> Tag:
        if isinstance(one, str) or isinstance(other, str):
            return Leak(name, one if isinstance(one, str) else str(other))
        if one != other:
            return Leak(name, f"places the rows of {self.dim} in different ways at different sizes")
        if (one.axis if one else None) != axis:
            return Leak(name, f"gives a size that follows {self.dim} in another way than its rows do")
        if one and not all(one.fits(shape, size) for shape, size in zip(shapes, self._sizes, strict=True)):
            return Leak(name, f"gives a size that follows {self.dim} in another way than its rows do")
        return one

    def _operands(self, value: Any, pair: Pair, side: int) -> Any:
        """An argument with operands in place of tensors."""
        if isinstance(value, Seen):
            known = self._values[value.number]
            tag = known.tag
            if isinstance(tag, Rows) and self._memory[known.seen.storage].written:
                tag = tag.plain
            rows = tag if isinstance(tag, Rows) else None
            return Operand(value.shape, rows, value.dtype in (torch.int64, torch.int32))
        if isinstance(value, tuple):
            return tuple(self._operands(item, pair, side) for item in value)
        return value

    def _unknown(self) -> str:
        return UNKNOWN.format(dim=self.dim)


Target = tuple[Seen, Seen, Seen | None]
"""What a step gives, in both runs, and, where that is an argument written to, how it was before in the first run."""


def _targets(pair: Pair) -> list[Target]:
    """What a step gives: its results, then what it writes to without returning it."""
    before = {value.number: value for value in _flat(_values_of(pair.first))}
    written = {seen.number for seen in pair.first.after.values()}
    targets: list[Target] = []
    for one, other in zip(pair.first.results, pair.second.results, strict=True):
        if isinstance(one, Seen) and isinstance(other, Seen):
            targets.append((one, other, before.get(one.number) if one.number in written else None))
    returned = {first.number for first, _, _ in targets}
    for key, one in pair.first.after.items():
        if one.number not in returned:
            targets.append((one, pair.second.after[key], before[one.number]))
    return targets


def _hands_out(step: Step) -> bool:
    """Whether a step that takes rows gives Python values of them, or can only be there to raise an error."""
    if step.name in _HARMLESS:
        return False
    numbers = any(result is not None and not isinstance(result, Seen) for result in step.results)
    nothing = not step.after and not any(isinstance(result, Seen) for result in step.results)
    return nothing or (numbers and rule_for(step.func) is None)


def _flat(value: Any) -> list[Seen]:
    if isinstance(value, Seen):
        return [value]
    return [seen for item in value for seen in _flat(item)] if isinstance(value, (tuple, list)) else []


def _values_of(step: Step) -> list[Any]:
    return [*step.args, *step.kwargs.values()]


def _same(value: Value | None, seen: Seen) -> bool:
    return value is not None and value.seen == seen


def _plain(tag: Tag) -> Tag:
    return tag.plain if isinstance(tag, Rows) else tag


def _bound(step: Step) -> dict[str, Any]:
    """The arguments by name, defaults included."""
    bound: dict[str, Any] = {}
    for index, (name, default) in enumerate(operators.arguments(step.func)):
        bound[name] = step.args[index] if index < len(step.args) else step.kwargs.get(name, default)
    return bound


def _same_value(one: Any, other: Any) -> bool:
    if isinstance(one, Seen) and isinstance(other, Seen):
        return one.number == other.number
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same_value, one, other))
    return type(one) is type(other) and bool(one == other or (one != one and other != other))


def _following(one: tuple[int, ...], other: tuple[int, ...], dim: str) -> int | None:
    """The axis of a result whose size differs between the runs."""
    if len(one) != len(other):
        raise Mixes(f"gives another number of axes at another size of {dim}")
    axes = [axis for axis, sizes in enumerate(zip(one, other, strict=True)) if sizes[0] != sizes[1]]
    if len(axes) > 1:
        raise Mixes(f"gives a tensor that has {dim} in several axes")
    return axes[0] if axes else None

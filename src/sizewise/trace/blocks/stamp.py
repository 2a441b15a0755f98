"""One trace with marks and stand-ins, made into the graph that a full trace gives.

Everything here works on the graph before anything is read from it: each stand-in becomes a copy of the first block's
part of the graph, with that block's own parameters and numbers in it, and the guards on the first block are made for
the others as well. The values that guards compare are taken from each block itself, later.
"""

from __future__ import annotations

import dis
import itertools
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx, nn

from ...calls import Call
from ...dims import DimSpec
from ...errors import SizewiseError
from ...traced.code import is_in_library
from ...traced.paths import MODULE, SourcePath
from .. import dynamo
from ..evidence import GuardRecord
from ..problems import SizeGuard
from ..shapes import expression
from .alike import NotAlike, Run
from .markers import Recorder, flatten, marked, number_sources, source_name, symbolic

_HERE = __name__.rpartition(".")[0]
_OWN_FILE = flatten.__code__.co_filename


def capture_once(
    twin: nn.Module,
    runs: list[Run],
    call: Call,
    spec: DimSpec,
    policy: Mapping[str, str],
    owner: str,
    method: str = "__call__",
) -> dynamo.RawTrace:
    """What `dynamo.capture` gives, from a trace that goes through the first block of each run only.

    Raises:
        NotAlike: the blocks are not shown to be alike; nothing is changed, and the model has to be traced in full.
    """
    recorders = [Recorder(run, number) for number, run in enumerate(runs)]
    numbers = number_sources(runs)
    try:
        with marked(twin, recorders) as meanings, symbolic(list(numbers)):
            raw = dynamo.capture(twin, call, spec, policy, owner, method)
    except (SizewiseError, SizeGuard) as problem:
        reason = next((recorder.problem for recorder in recorders if recorder.problem), "")
        raise NotAlike(reason or f"the trace with marks failed: {problem}") from problem
    called = {_prefix(run, key) for run in runs for key in run.keys}
    raw.guards = [_of_the_block(guard, called) for guard in raw.guards]
    raw.guards = [guard for guard in raw.guards if not _is_ours(guard, called)]
    code = getattr(raw.context, "traced_code", None)
    if code is not None:
        code[:] = [item for item in code if item.co_filename != _OWN_FILE]
    _refuse_marks_inside(raw.graph, meanings)
    if numbers and any(_reads_dicts(item) for item in code or ()):
        raise NotAlike("a number may be read through the dict of a block")
    attribute = _set_and_read(code or ())
    if attribute:
        # On a tensor, say, which goes into a block: the marks do not show what it says there.
        raise NotAlike(f"the attribute {attribute} is set while forward runs, and read")
    stamps = _Stamps(twin, raw, recorders, meanings)
    stamps.unroll()
    raw.guards = _with_guards(raw.guards, runs, stamps.numbers_read)
    return raw


def _reads_dicts(code: Any) -> bool:
    return not is_in_library(code) and bool({"vars", "__dict__"} & {*code.co_names})


def _set_and_read(codes: Iterable[Any]) -> str:
    """An attribute that code of the user's sets, outside of ``__init__``, and that some code reads; or ''."""
    stored: set[str] = set()
    loaded: set[str] = set()
    for code in codes:
        own = not is_in_library(code) and code.co_name != "__init__"
        for step in dis.get_instructions(code):
            if step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                loaded.add(step.argval)
            elif own and step.opname == "STORE_ATTR":
                stored.add(step.argval)
    return min(stored & loaded, default="")


def _refuse_marks_inside(graph: fx.GraphModule, meanings: Mapping[Any, str]) -> None:
    """Marks in a graph that another one calls (a checkpoint, a branch) stand for nothing there."""
    for part in graph.modules():
        nodes = part.graph.nodes if part is not graph and isinstance(part, fx.GraphModule) else ()
        if any(node.op == "call_function" and node.target in meanings for node in nodes):
            raise NotAlike("a block is called inside of a checkpoint or a branch")


def _of_the_block(guard: GuardRecord, called: set[tuple[Any, ...]]) -> GuardRecord:
    """A guard on ``block.forward.__self__``, as a mark's own ``self`` is called, as one on the block."""
    path = guard.path
    if path is None or not _in_module(path):
        return guard
    for block in called:
        mark = (*block, ("attr", "forward"), ("attr", "__self__"))
        if path.steps[: len(mark)] == mark and guard.kind != "DUPLICATE_INPUT":
            path = replace(path, steps=block + path.steps[len(mark) :])
            return replace(guard, path=path, name=str(path))
    return guard


def _is_ours(guard: GuardRecord, called: set[tuple[Any, ...]]) -> bool:
    """Whether a guard is on the marks: on a block's replaced forward, on this room's code and what it uses."""
    if _HERE in str(guard.path) or _HERE.replace(".", "_dot_") in str(guard.path):
        return True
    path = guard.path
    if path is None or not _in_module(path):
        return False
    if any(path.steps[: len(block) + 1] == (*block, ("attr", "forward")) for block in called):
        return True
    # Asked for because the block has a forward of its own.
    return path.steps[-1:] == (("item", "_compiled_call_impl"),) and path.steps[:-5] in called


def _in_module(path: SourcePath | None) -> bool:
    return path is not None and path.root_kind == "local" and path.root == MODULE


def _prefix(run: Run, key: str) -> tuple[tuple[str, Any], ...]:
    """The steps to a block as Dynamo's sources have them."""
    parts = [part for part in run.name(key).split(".") if part]
    return tuple(itertools.chain.from_iterable((("attr", "_modules"), ("item", part)) for part in parts))


def _moved(path: SourcePath | None, old: tuple[Any, ...], new: tuple[Any, ...]) -> SourcePath | None:
    """The path with its beginning replaced, or None where it does not begin so."""
    if path is None or not _in_module(path) or path.steps[: len(old)] != old:
        return None
    return replace(path, steps=new + path.steps[len(old) :])


def _with_guards(
    guards: list[GuardRecord], runs: list[Run], numbers_read: dict[int, set[tuple[str, str]]]
) -> list[GuardRecord]:
    """The guards with those on a first block made for the others, and on the numbers that were symbols."""
    found: dict[tuple[Any, ...], GuardRecord] = {}

    def add(guard: GuardRecord) -> None:
        found.setdefault((guard.kind, str(guard.path), guard.attribute, str(guard.other)), guard)

    for guard in guards:
        add(guard)
    for number, run in enumerate(runs):
        first = _prefix(run, run.keys[0])
        for key in run.keys:
            here = _prefix(run, key)
            for guard in guards:
                path = _moved(guard.path, first, here)
                # What is on its class is on the others' class too.
                if path is not None and ("type", "") not in path.steps[:-1]:
                    add(
                        replace(guard, path=path, name=str(path), other=_moved(guard.other, first, here) or guard.other)
                    )
            block = SourcePath("local", MODULE, here)
            add(GuardRecord("NOT_PRESENT_IN_GENERIC_DICT", str(block), block, "AttrSource", "forward"))
            for inner, name in numbers_read.get(number, ()):
                parts = [part for part in inner.split(".") if part]
                steps = itertools.chain.from_iterable((("attr", "_modules"), ("item", part)) for part in parts)
                path = SourcePath("local", MODULE, (*here, *steps, ("attr", name)))
                add(GuardRecord("EQUALS_MATCH", str(path), path, "AttrSource"))
    return list(found.values())


@dataclass
class _Region:
    """The first block's part of a graph."""

    nodes: list[fx.Node]
    arguments: list[Any]
    results: list[Any]


class _Stamps:
    """Copies of the first blocks' parts of one graph."""

    def __init__(
        self, twin: nn.Module, raw: dynamo.RawTrace, recorders: list[Recorder], meanings: Mapping[Any, str]
    ) -> None:
        self.twin, self.raw, self.recorders, self.meanings = twin, raw, recorders, meanings
        self.graph: fx.Graph = raw.graph.graph
        self.numbers_read: dict[int, set[tuple[str, str]]] = {}
        self._holders: dict[int, fx.Node] = {}
        self._symbols: dict[fx.Node, tuple[int, str, str]] = {}
        self._read_placeholders()

    def unroll(self) -> None:
        marks = [node for node in self.graph.nodes if node.op == "call_function" and node.target in self.meanings]
        regions = self._regions(marks)
        self._refuse_symbols_elsewhere(regions)
        for node in marks:
            if self.meanings[node.target] == "stand_in":
                self._stamp(node, regions[node.args[0]])
        for number, region in regions.items():
            self._settle_numbers(self.recorders[number].run, region)
        for node in reversed(marks):
            for item in list(node.users):
                self.graph.erase_node(item)
            self.graph.erase_node(node)
        for node in self._symbols:
            if node.users:
                raise NotAlike("a number of a block is used outside of it")
            self.graph.erase_node(node)
        self.graph.lint()

    def _read_placeholders(self) -> None:
        """Which tensor of the module each placeholder holds, and which of a block's numbers."""
        numbers = number_sources([one.run for one in self.recorders])
        by_run = {id(recorder.run): recorder.number for recorder in self.recorders}
        for node in self.graph.nodes:
            if node.op != "placeholder":
                continue
            found = numbers.get(source_name(node))
            if found is not None:
                run, path, attribute = found
                self._symbols[node] = (by_run[id(run)], path, attribute)
                continue
            where = dynamo.path_of_input(node)
            if _in_module(where) and where is not None:
                self._holders.setdefault(id(where.fetch(self.twin)), node)

    def _regions(self, marks: list[fx.Node]) -> dict[int, _Region]:
        """The nodes between each run's two marks."""
        regions: dict[int, _Region] = {}
        opened: dict[int, fx.Node] = {}
        order = {node: number for number, node in enumerate(self.graph.nodes)}
        for mark in marks:
            number, meaning = mark.args[0], self.meanings[mark.target]
            if meaning == "enter":
                opened[number] = mark
            elif meaning == "leave":
                start = opened[number]
                nodes = [node for node in self.graph.nodes if order[start] < order[node] < order[mark]]
                if any(node in marks or node.op not in ("call_function", "call_method") for node in nodes):
                    raise NotAlike("a block calls another one, or holds a graph of its own")
                count = mark.args[4]
                regions[number] = _Region(nodes, list(start.args[3:]), list(mark.args[5 : 5 + count]))
                self._refuse_own_tensors(self.recorders[number].run, start)
        return regions

    def _refuse_own_tensors(self, run: Run, start: fx.Node) -> None:
        """A tensor of the first block that is an argument as well: which of the two is read cannot be told."""
        block = _prefix(run, run.keys[0])
        for node in start.args[3:]:
            path = dynamo.path_of_input(node) if isinstance(node, fx.Node) and node.op == "placeholder" else None
            if path is not None and _in_module(path) and path.steps[: len(block)] == block:
                raise NotAlike("a block's own tensor is an argument of blocks")

    def _refuse_symbols_elsewhere(self, regions: dict[int, _Region]) -> None:
        """Numbers may be arguments of operators in their own block, and nothing else."""
        if not self._symbols:
            return
        self._drop_bounds()
        symbols = {expression(node.meta["example_value"]) for node in self._symbols}
        env = self.raw.fake_mode.shape_env
        conditions = [guard.expr for guard in env.guards]
        conditions += [item.expr for items in env.deferred_runtime_asserts.values() for item in items]
        if any(symbols & condition.free_symbols for condition in conditions):
            raise NotAlike("a condition hangs on a number of a block")
        for node in self.graph.nodes:
            if node not in self._symbols and symbols & _free_symbols(node.meta.get("example_value")):
                raise NotAlike("a size or a number is computed from a number of a block")
        for node, (number, path, attribute) in self._symbols.items():
            if any(user not in regions[number].nodes for user in node.users):
                raise NotAlike("a number of a block is used outside of it")
            self.numbers_read.setdefault(number, set()).add((path, attribute))

    def _drop_bounds(self) -> None:
        """Dynamo states the bounds of a symbol, ``number >= 0``: true of every block's number, it goes."""
        for node, (number, _, _) in self._symbols.items():
            run = self.recorders[number].run
            for user in list(node.users):
                is_bound = user.op == "call_function" and user.target in (operator.ge, operator.le)
                checks = [check for check in user.users if check.target is torch.ops.aten._assert_scalar.default]
                if not is_bound or len(checks) != len(user.users) or user.args[0] is not node:
                    continue
                values = [self._number(run, key, node) for key in run.keys]
                if all(user.target(value, user.args[1]) for value in values):
                    for unneeded in (*checks, user):
                        self.graph.erase_node(unneeded)

    def _stamp(self, mark: fx.Node, region: _Region) -> None:
        """A copy of ``region`` in place of a stand-in."""
        number, key = mark.args[0], mark.args[1]
        run = self.recorders[number].run
        given = dict[fx.Node, Any]()
        for ours, theirs in zip(region.arguments, mark.args[3:], strict=True):
            if isinstance(ours, fx.Node):
                given.setdefault(ours, theirs)
        copies: dict[fx.Node, fx.Node] = {}

        def counterpart(node: fx.Node) -> Any:
            if node in copies:
                return copies[node]
            if node in self._symbols:
                return self._number(run, key, node)
            if node in given:
                if given[node] is not node and node.op == "placeholder" and _in_module(dynamo.path_of_input(node)):
                    raise NotAlike("a block gets a tensor of the module as an argument, and others another one")
                return given[node]
            if node.op == "placeholder" and isinstance(node.meta["example_value"], torch.Tensor):
                return self._tensor_of(run, key, node)
            if isinstance(node.meta.get("example_value"), torch.SymInt):
                return node  # a size: the same in all calls, since their shapes are
            raise NotAlike(f"a block reads {node.name}, which it did not get as an argument")

        with self.graph.inserting_before(mark):
            for node in region.nodes:
                copies[node] = self.graph.node_copy(node, counterpart)
                if any(source in self._symbols for source in node.all_input_nodes):
                    self._compare(node, copies[node])
        made = [copies[node] for node in self._new_results(region)]
        for item in list(mark.users):
            item.replace_all_uses_with(made[item.args[1]])

    def _new_results(self, region: _Region) -> list[fx.Node]:
        """The nodes of the results that are no arguments, in order; each has to be computed in the block."""
        found = [node for node in region.results if node not in region.arguments]
        if any(node not in region.nodes for node in found):
            raise NotAlike("a block returns a tensor that it did not compute")
        return found

    def _number(self, run: Run, key: str, node: fx.Node) -> int:
        _, path, attribute = self._symbols[node]
        block = self.twin.get_submodule(run.name(key))
        return int(getattr(block.get_submodule(path), attribute))

    def _settle_numbers(self, run: Run, region: _Region) -> None:
        """The first block's own numbers in place of their symbols."""
        for node in region.nodes:
            if any(source in self._symbols for source in node.all_input_nodes):
                before = node.meta.get("example_value")

                def settled(source: fx.Node) -> Any:
                    return self._number(run, run.keys[0], source) if source in self._symbols else source

                node.args = fx.map_arg(node.args, settled)
                node.kwargs = fx.map_arg(node.kwargs, settled)
                self._compare_with(before, node)

    def _compare(self, first: fx.Node, copy: fx.Node) -> None:
        self._compare_with(first.meta.get("example_value"), copy)

    def _compare_with(self, expected: Any, node: fx.Node) -> None:
        """An operator may make something else of another number: run it on fake tensors and compare.

        Raises:
            NotAlike: the result has another shape, or the operator fails.
        """
        values = fx.map_arg((node.args, dict(node.kwargs)), lambda source: source.meta["example_value"])
        args, kwargs = values
        mode = next((leaf.fake_mode for leaf in _leaves(values) if hasattr(leaf, "fake_mode")), None)
        try:
            with mode or torch._subclasses.FakeTensorMode():
                if node.op == "call_method":
                    result = getattr(args[0], str(node.target))(*args[1:], **kwargs)
                else:
                    result = node.target(*args, **kwargs)
        except Exception as problem:
            raise NotAlike(f"an operator fails with the number of another block: {problem}") from problem
        if _shapes(result) != _shapes(expected):
            raise NotAlike("an operator gives something else for the number of another block")

    def _tensor_of(self, run: Run, key: str, node: fx.Node) -> fx.Node:
        """The placeholder of the tensor that stands in block ``key`` where ``node``'s stands in the first one."""
        path = dynamo.path_of_input(node)
        if path is None or not _in_module(path):
            raise NotAlike(f"a block reads {node.name}, which is not of the module")
        tensor = path.fetch(self.twin)
        other = run.pairs[key].tensors.get(id(tensor))
        if other is None or other is tensor:
            return node
        held = self._holders.get(id(other))
        if held is not None:
            return held
        moved = _moved(path, _prefix(run, run.keys[0]), _prefix(run, key))
        if moved is None or moved.fetch(self.twin) is not other:
            raise NotAlike(f"the tensor {path} has no counterpart in block {key}")
        made = self._placeholder(node, moved)
        self._holders[id(other)] = made
        return made

    def _placeholder(self, like: fx.Node, path: SourcePath) -> fx.Node:
        last = [node for node in self.graph.nodes if node.op == "placeholder"][-1]
        with self.graph.inserting_after(last):
            made = self.graph.placeholder(f"stamped_{len(self._holders)}")
        fake = like.meta["example_value"]
        with fake.fake_mode:
            copy = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)
        made.meta = {**like.meta, "example_value": copy.requires_grad_(fake.requires_grad), dynamo.PATH: path}
        return made


def _free_symbols(value: Any) -> set[Any]:
    """The symbols in the sizes of a value of a graph."""
    found: set[Any] = set()
    for leaf in _leaves(value):
        sizes = [*leaf.shape, *leaf.stride()] if isinstance(leaf, torch.Tensor) else [leaf]
        for size in sizes:
            if isinstance(size, (torch.SymInt, torch.SymBool, torch.SymFloat)):
                found |= set(expression(size).free_symbols)
    return found


def _leaves(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _shapes(value: Any) -> list[Any]:
    return [
        (tuple(map(str, leaf.shape)), tuple(map(str, leaf.stride())), leaf.dtype, leaf.device)
        if isinstance(leaf, torch.Tensor)
        else (type(leaf), str(leaf))
        for leaf in _leaves(value)
    ]

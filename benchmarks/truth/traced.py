# ruff: noqa: C416  (the mistakes are what is asked for)
"""Errors of what traces and spreads programs: export, fx, fake tensors, references, torch.distributed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.export import Dim, export
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

X = torch.ones(4, 4)


class Branch(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x - 1


class Chunk(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(2, -1)


def tracing() -> list[Callable[[], Any]]:
    """torch.export, torch.fx, fake tensors, symbolic shapes, higher-order operators."""
    batch = Dim("batch", min=2, max=8)
    return [
        lambda: export(abs, (X,)),
        lambda: export(nn.Linear(4, 4), X),
        lambda: export(nn.Linear(4, 4), (X,), dynamic_shapes={"nope": {0: batch}}),
        lambda: export(nn.Linear(4, 4), (X,), dynamic_shapes=({5: batch},)),
        lambda: export(nn.Linear(4, 4), (X,), dynamic_shapes=({0: "x"},)),
        lambda: export(nn.Linear(4, 4), (X,), dynamic_shapes=({0: batch}, {0: batch})),
        lambda: export(nn.Linear(4, 4), (torch.ones(9, 4),), dynamic_shapes=({0: batch},)),
        lambda: export(nn.Linear(4, 4), (torch.ones(1, 4),), dynamic_shapes=({0: batch},)),
        lambda: export(nn.Linear(4, 4), (X,), dynamic_shapes=({1: batch},)),
        lambda: export(Chunk(), (X,), dynamic_shapes=({0: batch},), strict=True),
        lambda: export(Branch(), (X,)),
        lambda: export(Branch(), (X,), strict=True),
        lambda: export(torch.jit.script(nn.Linear(4, 4)), (X,)),
        lambda: export(nn.Linear(4, 4), (X,), preserve_module_call_signature=("nope",)),
        lambda: export(nn.Linear(4, 4), (object(),)),
        lambda: export(nn.Linear(4, 4), (X,)).module()(torch.ones(3, 4)),
        lambda: export(nn.Linear(4, 4), (X,)).module()(X, X),
        lambda: export(nn.Linear(4, 4), (X,))(X),
        lambda: export(nn.Linear(4, 4), (X,)).module().eval(),
        lambda: export(nn.Linear(4, 4), (X,)).module().train(),
        lambda: setattr(export(nn.Linear(4, 4), (X,)), "graph", 3),
        lambda: setattr(export(nn.Linear(4, 4), (X,)), "graph_signature", 3),
        lambda: Dim("no good"),
        lambda: Dim("dim", min=4, max=2),
        lambda: batch + 2.5,
        lambda: batch - 1 - 0.5,
        lambda: batch * -3,
        lambda: batch // 2,
        lambda: batch / 2,
        lambda: Dim.AUTO(min=5, max=2),
        lambda: torch.export.dims("a", min=4, max=2),
        lambda: torch.export.load("/nowhere.txt"),
        lambda: torch.export.load("/nowhere.pt2"),
        lambda: torch.export.save(3, "/tmp/x.pt2"),
        lambda: torch.export.register_dataclass(3),
        lambda: torch.export.unflatten(3),
        lambda: torch.export.ShapesCollection().__setitem__(3, {0: batch}),
        lambda: torch.export.AdditionalInputs().add(3, 4),
        lambda: torch.export.draft_export(abs, (X,)),
        lambda: torch.export.export_for_training(nn.Linear(1, 1), (X,)),
        lambda: fx.symbolic_trace(Branch()),
        lambda: fx.symbolic_trace(lambda x: [y for y in x]),
        lambda: fx.symbolic_trace(lambda x: len(x)),
        lambda: fx.symbolic_trace(lambda x: int(x)),
        lambda: fx.symbolic_trace(lambda x: range(x)),
        lambda: fx.symbolic_trace(lambda x: {**x}),
        lambda: fx.symbolic_trace(lambda *, x: x, concrete_args={"y": 1}),
        lambda: fx.symbolic_trace(lambda x: f"{x:d}"),
        lambda: fx.Tracer().trace(3),
        lambda: fx.Graph().create_node("nope", "x"),
        lambda: fx.Graph().call_function("nope"),
        lambda: fx.Graph().placeholder("x").prepend(3),
        lambda: fx.Graph().inserting_before(fx.Graph().placeholder("x")),
        lambda: fx.Graph().node_copy(3),
        lambda: _erase_used(),
        lambda: _lint_broken(),
        lambda: fx.GraphModule(3, fx.Graph()),
        lambda: fx.GraphModule({}, _graph_with("call_module", "inner")),
        lambda: fx.GraphModule(nn.Module(), _graph_with("get_attr", "no.such")),
        lambda: fx.Interpreter(fx.symbolic_trace(lambda x: x)).run(),
        lambda: fx.Interpreter(fx.symbolic_trace(lambda x: x)).fetch_attr("no.such"),
        lambda: fx.Transformer(fx.symbolic_trace(lambda x: x)).call_module("nope", (), {}),
        lambda: fx.wrap(3),
        lambda: fx.wrap("nope"),
        lambda: fx.replace_pattern(fx.symbolic_trace(lambda x: x), 3, 4),
        lambda: fx.passes.split_module.split_module(fx.symbolic_trace(lambda x: x + 1), nn.Module(), 3),
        lambda: fx.passes.shape_prop.ShapeProp(fx.symbolic_trace(lambda x: x + 1)).propagate("x"),
        lambda: fx.node.map_arg(3, 3),
        lambda: make_fx(lambda x: x, tracing_mode="nope")(X),
        lambda: make_fx(lambda x: x + 1 if x.sum() > 0 else x)(X),
        lambda: make_fx(lambda x: x.sum().item(), tracing_mode="fake")(X),
        lambda: make_fx(3)(X),
        lambda: FakeTensorMode().from_tensor(3),
        lambda: _faked(lambda x: x + torch.ones(3)),
        lambda: _faked(lambda x: x.item()),
        lambda: _faked(lambda x: x.nonzero()),
        lambda: _faked(lambda x: x.numpy()),
        lambda: _faked(lambda x: x @ torch.ones(3)),
        lambda: _faked(lambda x: torch.cat([x, x.sum()])),
        lambda: _faked(lambda x: x.view(3)),
        lambda: _faked(lambda x: x.expand(2)),
        lambda: _faked(lambda x: torch.nn.functional.linear(x, torch.ones(3, 3))),
        lambda: _faked(lambda x: torch.conv2d(x, x)),
        lambda: _faked(lambda x: torch.baddbmm(x, x, x)),
        lambda: _faked(lambda x: torch.bmm(x, x)),
        lambda: _faked(lambda x: torch.addmm(x, x, torch.ones(3, 3))),
        lambda: _faked(lambda x: torch.mv(x, x)),
        lambda: _faked(lambda x: torch.dot(x, x)),
        lambda: _faked(lambda x: torch.linalg.inv(torch.ones(2, 3))),
        lambda: _faked(lambda x: torch.linalg.cholesky(torch.ones(2))),
        lambda: _faked(lambda x: torch.gather(x, 0, torch.ones(1))),
        lambda: _faked(lambda x: torch.index_select(x, 0, torch.ones(1, 1))),
        lambda: _faked(lambda x: torch.scatter(x, 0, torch.ones(1, dtype=torch.long), x)),
        lambda: _faked(lambda x: torch.max_pool2d(torch.ones(2), 2)),
        lambda: _faked(lambda x: torch.nn.functional.avg_pool2d(torch.ones(1, 1, 1, 1), 3)),
        lambda: _faked(lambda x: torch.nn.functional.embedding(x, x)),
        lambda: _faked(lambda x: torch.nn.functional.nll_loss(x, torch.ones(3, dtype=torch.long))),
        lambda: _faked(lambda x: torch.nn.functional.pad(torch.ones(1), (1, 1, 1, 1))),
        lambda: _faked(lambda x: torch.nn.functional.glu(torch.ones(3))),
        lambda: _faked(lambda x: torch.nn.functional.pixel_shuffle(torch.ones(1, 3, 2, 2), 2)),
        lambda: _faked(lambda x: torch.cdist(torch.ones(1), torch.ones(1))),
        lambda: _faked(lambda x: torch.repeat_interleave(torch.ones(2, dtype=torch.long))),
        lambda: _faked(lambda x: torch.diag_embed(x, dim1=0, dim2=0)),
        lambda: _faked(lambda x: torch.rot90(x, dims=[0, 0])),
        lambda: _faked(lambda x: torch.roll(x, (1, 1), (0,))),
        lambda: _faked(lambda x: x.unfold(0, 9, 1)),
        lambda: _faked(lambda x: x.unflatten(0, (3, 3))),
        lambda: _faked(lambda x: torch.stack([])),
        lambda: _faked(lambda x: x.to("meta").item()),
        lambda: _faked(lambda x: torch.arange(0, 3, -1)),
        lambda: _faked(lambda x: torch.linspace(0, 1, -3)),
        lambda: _faked(lambda x: torch.eye(-2)),
        lambda: torch._refs.cat([]),
        lambda: torch._refs.add(X, "x"),
        lambda: torch._refs.flip(X, (0, 0)),
        lambda: torch._refs.permute(X, (0,)),
        lambda: torch._refs.transpose(X, 0, 7),
        lambda: torch._refs.reshape(X, (3,)),
        lambda: torch._refs.tensor_split(X, -1),
        lambda: torch._refs.narrow(X, 0, 9, 1),
        lambda: torch._refs.norm(X, p="zz"),
        lambda: torch._refs.softmax(X, 9),
        lambda: ShapeEnv().create_symbol(3, None),
        lambda: torch.cond("x", abs, abs, (X,)),
        lambda: torch.cond(True, abs, abs, 3),
        lambda: torch.ops.higher_order.cond(True, abs, abs, 3),
        lambda: torch._higher_order_ops.scan(3, X, X),
        lambda: torch._higher_order_ops.associative_scan(3, X, 0),
        lambda: torch._higher_order_ops.associative_scan(abs, X, 0, combine_mode="x"),
        lambda: torch.nn.attention.flex_attention.flex_attention(X, X, X),
        lambda: torch.nn.attention.flex_attention.create_block_mask(3, 1, 1, 4, 4, device="cpu"),
        lambda: torch.nn.attention.sdpa_kernel(3).__enter__(),
        lambda: torch._dynamo.debug_utils.same_two_models(3, 4, 5),
    ]


def spread() -> list[Callable[[], Any]]:
    """torch.distributed without a process group, device meshes and placements."""
    import torch.distributed as dist
    from torch.distributed.checkpoint import FileSystemReader
    from torch.distributed.tensor import Shard, distribute_tensor

    return [
        lambda: dist.get_rank(),
        lambda: dist.get_world_size(),
        lambda: dist.all_reduce(X),
        lambda: dist.broadcast(X, 0),
        lambda: dist.barrier(),
        lambda: dist.init_process_group("nowhere"),
        lambda: dist.init_process_group("gloo"),
        lambda: dist.init_process_group("gloo", init_method="what://x"),
        lambda: dist.init_process_group("gloo", rank=0),
        lambda: dist.init_process_group("gloo", store=3),
        lambda: dist.init_process_group("gloo", timeout=3),
        lambda: dist.new_group([0]),
        lambda: dist.destroy_process_group(),
        lambda: dist.Backend(3),
        lambda: dist.P2POp(abs, X, 0),
        lambda: dist.batch_isend_irecv([]),
        lambda: dist.reduce_op.nope,
        lambda: dist.get_backend(),
        lambda: dist.init_device_mesh("cpu", (1, 1), mesh_dim_names=("a",)),
        lambda: dist.init_device_mesh("cpu", (1, 1), mesh_dim_names=("a", "a")),
        lambda: dist.init_device_mesh("cpu:0", (1,)),
        lambda: distribute_tensor(X, 3),
        lambda: Shard(0)._split_tensor(X, 0),
        lambda: FileSystemReader("/nowhere").read_metadata(),
        lambda: nn.parallel.DistributedDataParallel(nn.Linear(1, 1)),
        lambda: nn.parallel.DistributedDataParallel(nn.ReLU()),
        lambda: nn.DataParallel(nn.Linear(1, 1), device_ids=[0])(X),
        lambda: torch.distributed.fsdp.fully_shard(nn.Linear(1, 1), reshard_after_forward="x"),
        lambda: torch.distributed.fsdp.FullyShardedDataParallel(nn.Linear(1, 1)),
        lambda: torch.distributed.elastic.multiprocessing.Std.from_str("zz"),
        lambda: torch.distributed.rpc.init_rpc("x"),
        lambda: torch.distributed.rpc.rpc_sync("x", abs),
        lambda: torch.distributed.pipelining.pipeline(3, ()),
        lambda: torch.distributed.pipelining.ScheduleGPipe(3, 4),
    ]


def _graph_with(op: str, target: str) -> fx.Graph:
    graph = fx.Graph()
    graph.output(graph.create_node(op, target))
    return graph


def _erase_used() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(abs, (x,))
    graph.erase_node(x)


def _lint_broken() -> None:
    graph, other = fx.Graph(), fx.Graph()
    graph.call_function(abs, (other.placeholder("x"),))
    graph.lint()


def _faked(function: Callable[[torch.Tensor], Any]) -> Any:
    with FakeTensorMode(allow_non_fake_inputs=True):
        return function(torch.ones(4, 4))

"""Kernels of several pieces in one C++ source: what they take, what they say, and what is built how often."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor import config
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.exc import CppCompileError

import sizewise
from sizewise.compilers import Background, kernels
from sizewise.compilers import background as background_room
from sizewise.compilers.background import finish
from sizewise.compilers.kernels import Kernel, batches
from sizewise.errors import build as errors

from .kernels_support import (
    SHAPES,
    Compiler,
    Salted,
    Steps,
    batches_seen,
    build,
    built_by,
    check,
    is_joined,
    kernel,
    ready,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    return Compiler(tmp_path / "notes", monkeypatch)


# -- which kernels are compiled together


def test_eight_kernels_are_worth_another_compiler() -> None:
    plain = kernel("", "float*")
    for count, workers, sizes in (
        (0, 8, []),
        (1, 8, [1]),
        (8, 8, [8]),
        (9, 8, [5, 4]),
        (9, 1, [9]),
        (33, 4, [9, 8, 8, 8]),
    ):
        planned = batches([plain] * count, workers)
        assert [len(numbers) for numbers in planned] == sizes
        assert sorted(number for numbers in planned for number in numbers) == list(range(count))


def test_kernels_that_cannot_be_joined_are_compiled_alone() -> None:
    plain, other = kernel("", "float*"), kernel("", "float*", before="#define A 1")
    assert batches([other, plain, other, plain], 8) == [[1, 3], [0], [2]]


@pytest.mark.parametrize("line", ["#if 1", "  #ifdef A", "# ifndef A", "#define kernel 1", "#undef A", "\t#\telse"])
def test_conditions_and_macros_are_left_alone(line: str) -> None:
    assert not kernel("", "float*", before=f"{line}\n#endif").can_be_joined()


@pytest.mark.parametrize(
    "line", ["#pragma omp parallel", "#include <cmath>", "// a #define of nothing", 'auto s = "#";']
)
def test_other_lines_are_no_obstacle(line: str) -> None:
    assert kernel("", "float*", before=line).can_be_joined()


@pytest.mark.parametrize("argtype", ["double", "bool", "int", "float&", "std::vector<float>", "float**", "float*)", ""])
def test_arguments_of_unknown_kinds_are_left_to_torch(argtype: str) -> None:
    assert not Kernel(("const float*", argtype), "").can_be_joined()


# -- what a joined kernel takes


def template(value: int) -> str:
    return (
        "constexpr int64_t step = 1;\nstatic int64_t calls = 0;\n"
        f"template <typename T> static inline T helper(T x) {{ return x + step * {value}; }}\n"
    )


TYPES = {
    "const float*": torch.float32,
    "double*": torch.float64,
    "at::Half*": torch.float16,
    "const at::BFloat16*": torch.bfloat16,
    "int64_t*": torch.int64,
    "const uint8_t*": torch.uint8,
    "bool*": torch.bool,
    "unsigned char*": torch.uint8,
}
TWIN = kernel("a0[0] += ++calls;", "float*", before=template(0), fresh=False)
BY_HAND = {
    "numbers": kernel("a0[0] = a1; a0[1] = a2;", "double*", "const int64_t", "float"),
    "an address": kernel("*reinterpret_cast<float*>(a0) = 5;", "uintptr_t"),
    "a template": kernel("a0[0] = helper(a0[0]);", "float*", before=template(1)),
    "its namesake": kernel("a0[0] = helper(a0[0]);", "float*", before=template(10)),
    "twin": TWIN,
    "other twin": TWIN,
    "its own include": kernel("a0[0] = std::gcd(12, 18);", "float*", before="#include <numeric>"),
    "its own name": kernel("auto kernel = a0[0]; a0[0] = kernel + 1;", "float*"),
    "nothing": kernel(""),
    "a problem": kernel('if (a0[0] < 0) throw std::runtime_error("below {0} %s");', "float*"),
    "a number thrown": kernel("throw 1;"),
    **{kind: kernel("a1[0] = static_cast<float>(a0[0]);", kind, "float*") for kind in TYPES},
}


@pytest.fixture(scope="module")
def by_hand() -> dict[str, Any]:
    """Every kernel of `BY_HAND`, of one library."""
    return dict(zip(BY_HAND, (load() for load in build(list(BY_HAND.values()))), strict=True))


def one(value: float = 0) -> torch.Tensor:
    return torch.tensor([float(value)])


def test_they_are_joined(by_hand: dict[str, Any]) -> None:
    assert all(map(is_joined, by_hand.values()))


@pytest.mark.parametrize("argtype", TYPES)
def test_pointers_of_every_type(argtype: str, by_hand: dict[str, Any]) -> None:
    x = one()
    by_hand[argtype](torch.ones(1, dtype=TYPES[argtype]), x)
    assert x.item() == 1


def test_numbers_and_addresses(by_hand: dict[str, Any]) -> None:
    x, y = torch.zeros(2, dtype=torch.float64), one()
    for whole, real in ((3, 0.5), (-1, -1.0), (2**52 + 1, 1e30), (-(2**63), float("inf")), (True, 7)):
        by_hand["numbers"](x, whole, real)
        assert x.tolist() == [float(whole), torch.tensor(real, dtype=torch.float32).item()]
    by_hand["an address"](y.data_ptr())
    assert y.item() == 5
    assert by_hand["nothing"]() is None


def test_names_are_each_kernels_own(by_hand: dict[str, Any]) -> None:
    x, y, z = one(), one(), one(4)
    by_hand["a template"](x)
    by_hand["its namesake"](y)
    by_hand["its own name"](z)
    assert (x.item(), y.item(), z.item()) == (1, 10, 5)
    by_hand["its own include"](x)
    assert x.item() == 6


def test_kernels_of_one_source_share_nothing(by_hand: dict[str, Any]) -> None:
    x, y = one(), one()
    for _ in range(3):
        by_hand["twin"](x)
    by_hand["other twin"](y)
    assert (x.item(), y.item()) == (6, 1)


X = torch.zeros(2, dtype=torch.float64)
WRONG: dict[str, tuple[tuple[Any, ...], str]] = {
    "too few": ((X, 3), "requires 3 args"),
    "too many": ((X, 3, 0.5, 1), "requires 3 args"),
    "none": ((), "requires 3 args"),
    "no tensor": ((3, 3, 0.5), "non-tensor input"),
    "None": ((None, 3, 0.5), "non-tensor input"),
    "a list": (([X], 3, 0.5), "non-tensor input"),
    "text for a size": ((X, "3", 0.5), "integer"),
    "a float for a size": ((X, 3.5, 0.5), "integer"),
    "a tensor for a size": ((X, X, 0.5), "int|scalar"),
    "a size that is too large": ((X, 2**63, 0.5), "too large"),
    "text for a float": ((X, 3, "0.5"), "real number"),
    "None for a float": ((X, 3, None), "real number"),
    "a large number for a float": ((X, 3, 10**400), "too large"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_an_error_and_no_crash(name: str, by_hand: dict[str, Any]) -> None:
    arguments, words = WRONG[name]
    X.fill_(7)
    with pytest.raises((RuntimeError, TypeError, ValueError, OverflowError), match=words):
        by_hand["numbers"](*arguments)
    assert X.tolist() == [7, 7]
    by_hand["numbers"](X, 1, 2)
    assert X.tolist() == [1, 2]


def test_keywords_and_wrong_addresses_are_refused(by_hand: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="keyword"):
        by_hand["nothing"](a=1)
    for value in ("text", 1.5, None, 2**80):
        with pytest.raises((TypeError, OverflowError)):
            by_hand["an address"](value)


def test_what_a_kernel_throws_is_raised(by_hand: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match=r"^below \{0\} %s$"):
        by_hand["a problem"](one(-1))
    assert by_hand["a problem"](one(1)) is None
    with pytest.raises(RuntimeError, match="unhandled error"):
        by_hand["a number thrown"]()


# -- kernels that the C++ compiler refuses


def test_one_that_is_refused_says_so_and_the_others_are_built() -> None:
    bad = kernel("a0[0] = no_such_name;", "float*")
    worse = kernel("a0[0] = nor_this_one;", "float*")
    fine = kernel("a0[0] = 3;", "float*")
    loads = build([bad, fine, worse])
    for _ in range(2):
        with pytest.raises(CppCompileError, match="no_such_name"):
            loads[0]()
        with pytest.raises(CppCompileError, match="nor_this_one"):
            loads[2]()
    x = one()
    loads[1]()(x)
    assert x.item() == 3 and not is_joined(loads[1]())


def test_those_that_do_not_go_together_are_built_one_by_one() -> None:
    helper = 'extern "C" int64_t sizewise_test_helper() { return %d; }'
    listed = [kernel("a0[0] = sizewise_test_helper();", "float*", before=helper % number) for number in (1, 2)]
    x = one()
    for number, load in enumerate(build(listed)):
        assert not is_joined(load())
        load()(x)
        assert x.item() == number + 1


# -- the waiting list


SAFE = "-fno-unsafe-math-optimizations"
"""A flag that torch gives to the C++ compiler unless a setting says otherwise."""


def promised(background: Background, settings: dict[str, Any], *listed: Kernel) -> list[dict[str, Any]]:
    """Scopes of generated modules, one per kernel."""
    settings = {"compile_threads": 1, **settings}
    with config.patch(settings), background.collecting(settings) as scopes:
        for one_ in listed:
            scope = {"fused": AsyncCompile().cpp_pybinding(list(one_.argtypes), one_.source)}
            AsyncCompile().wait(scope)
    assert len(scopes) == len(listed)
    return list(scopes)


@pytest.fixture
def background() -> Iterator[Background]:
    made = Background(2)
    yield made
    made.close()


def test_each_is_compiled_under_its_own_settings(background: Background, compiler: Compiler) -> None:
    listed = [kernel("a0[0] = 1;", "float*") for _ in range(4)]
    unsafe = {**compiler.setting, "cpp.enable_unsafe_math_opt_flag": True}
    scopes = promised(background, unsafe, *listed[:2]) + promised(background, compiler.setting, *listed[2:])
    assert compiler.runs() == []
    finish(scopes)
    runs = compiler.runs()
    assert len(runs) == 2 and sum(SAFE in run for run in runs) == 1


def test_also_where_joining_fails(background: Background, compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    joined = kernels._joined
    monkeypatch.setattr(kernels, "_joined", lambda listed: joined(listed) + "\n#error not together")
    unsafe = {**compiler.setting, "cpp.enable_unsafe_math_opt_flag": True}
    scopes = promised(background, unsafe, *(kernel("a0[0] = 1;", "float*") for _ in range(2)))
    finish(list(scopes))
    runs = compiler.runs()
    assert len(runs) == 3 and not any(SAFE in run for run in runs)
    assert all(not is_joined(scope["fused"]) for scope in scopes)


def test_compilers_start_once_eight_kernels_wait(background: Background, monkeypatch: pytest.MonkeyPatch) -> None:
    with batches_seen(monkeypatch) as seen:
        scopes = promised(background, {}, *(kernel("a0[0] = 1;", "float*") for _ in range(kernels.TOGETHER + 1)))
        assert [len(batch) for batch in seen] == [kernels.TOGETHER]
        finish(scopes)
        assert [len(batch) for batch in seen] == [kernels.TOGETHER, 1]


def test_what_another_build_broke_off_is_built() -> None:
    """Torch keeps what was started by source, for as long as the process lives."""
    listed = [kernel("a0[0] = 1;", "float*", before="#define ALONE") for _ in range(3)]
    first, second, gate = Background(1), Background(1), threading.Event()
    first._pool.submit(gate.wait, 30)
    promised_first = promised(first, {}, *listed)
    first._start_all()
    closing = threading.Thread(target=first.close)
    closing.start()
    while not first._pool._shutdown:
        pass
    gate.set()
    closing.join()
    scopes = promised(second, {}, *listed)
    finish(list(scopes))
    second.close()
    x = one()
    for scope in scopes:
        scope["fused"](x)
    assert x.item() == 1 and len(promised_first) == 3


def test_a_compiler_that_failed_once_is_asked_again(compiler: Compiler) -> None:
    module = Steps()
    compiler.refuse("cos")
    options = {"inductor_compile_config": compiler.setting}
    with pytest.raises(errors.CompileFailed, match=r"the C\+\+ compiler refused") as seen:
        ready(module, **options)
    assert "out of luck" in str(seen.value.__cause__)
    assert "product(x)" in seen.value.fields["where"]
    compiler.forgive()
    check(module, ready(module, **options))


# -- whole builds


def test_ten_kernels_are_shared_out_among_two_workers(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_room, "_cores", lambda: 2)
    module = Steps(10)
    with batches_seen(monkeypatch) as seen:
        fast = ready(module, inductor_compile_config=compiler.setting)
    assert [len(batch) for batch in seen] == [8, 2] and len(compiler.runs()) == 2
    assert len(built_by(fast)) == 10 and all(map(is_joined, built_by(fast)))
    check(module, fast)


OPTIONS: dict[str, dict[str, Any]] = {
    "no precompiled header": {"cpp_cache_precompile_headers": False},
    "one number at a time": {"cpp.simdlen": 1},
    "Inductor's own pool": {"compile_threads": 2},
    "a wrapper of C++": {"cpp_wrapper": True},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_inductors_settings_are_heard(name: str) -> None:
    module = Steps(1 if name == "a wrapper of C++" else 2)
    fast = ready(module, inductor_compile_config=OPTIONS[name], splitting_ops=["aten::linear"][: len(module.products)])
    check(module, fast)
    expected = {"Inductor's own pool": [False] * 2, "a wrapper of C++": []}.get(name, [True] * 2)
    assert [is_joined(one_) for one_ in built_by(fast)] == expected


class Products(Salted):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number in (1, 2):
            # Without the division tanh makes much of what rounding did to sums near zero.
            x = (torch.bmm(x.sin() * self.salt, (x.cos() + number).transpose(1, 2).contiguous()) / 32).tanh()
        return x


def test_templates_of_one_name_in_two_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Products().eval()
    options = {"max_autotune": True, "max_autotune_gemm_backends": "CPP"}
    x = torch.randn(7, 32, 32)
    fast = sizewise.compile(module, dynamic_shapes=SHAPES, inductor_compile_config=options)
    with batches_seen(monkeypatch) as seen:
        fast.warmup(x)
    assert sum("template <" in one_.source for batch in seen for one_ in batch) >= 2
    assert all(map(is_joined, built_by(fast)))
    torch.testing.assert_close(fast(x), module(x), rtol=1e-3, atol=1e-3)


class Divides(Salted):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = (x + int(self.salt * 1e6)).sort(0)[0] - int(self.salt * 1e6)
        return 7 // x + 7 % x


def test_a_division_by_zero_is_eagers_error() -> None:
    module = Divides().eval()
    fast = sizewise.compile(module, dynamic_shapes=SHAPES, splitting_ops=["aten::sort"])
    fast.warmup(torch.full((3, 8), 5))
    assert all(map(is_joined, built_by(fast)))
    zero, five = torch.full((3, 8), 5), torch.full((4, 8), 5)
    zero[0, 0] = 0
    for function in (module, fast):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            function(zero)
        assert torch.equal(function(five), torch.full((4, 8), 3))


def test_builds_in_two_threads(compiler: Compiler) -> None:
    same, problems = Steps(), list[BaseException]()
    modules = [same, same, Steps()]

    def work(module: Steps) -> None:
        try:
            check(module, ready(module, inductor_compile_config=compiler.setting))
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(module,)) for module in modules]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert len(compiler.runs()) == 2


SECOND = """
import sys, torch
from tests.kernels_support import Steps, check, ready
torch.set_num_threads(1)
module = Steps()
module.salt = float(sys.argv[1])
check(module, ready(module, inductor_compile_config={"cpp.cxx": sys.argv[2]}))
"""


def test_a_second_process_starts_no_compiler(compiler: Compiler) -> None:
    module = Steps()
    ready(module, inductor_compile_config=compiler.setting)
    assert len(compiler.runs()) == 1
    done = subprocess.run(
        [sys.executable, "-c", SECOND, str(module.salt), str(compiler.path)],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert compiler.runs() == []

"""What Inductor finds out about a machine, once per process and cache directory: its vector instruction set.

Inductor builds and loads a small library for each instruction set that the processor has, which takes seconds. The
processor's own list is enough, where the C++ compiler knows the flags: then only what the list does not say (AMX) is
still tried.

Private API: ``torch._inductor.config.cpp.vec_isa_ok``, ``cpu_vec_isa.pick_vec_isa`` and ``valid_vec_isa_list``,
``cpp_builder.get_cpp_compiler``. Checked on torch 2.13.0 and 2.14.1. Where one is missing, or the user has said
something else (``TORCHINDUCTOR_VEC_ISA_OK``), Inductor does as it does.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Mapping
from typing import Any

SETTING = "cpp.vec_isa_ok"


def import_build_tools() -> None:
    """Import what a C++ build imports, before a second thread does.

    ``import setuptools`` takes a finder out of ``sys.meta_path`` and puts it back. A thread that looks for a module at
    that moment skips the finder behind it, and is told that a module that is there is missing.
    """
    with contextlib.suppress(ImportError):  # whoever builds says so by name
        from torch.utils import cpp_extension  # noqa: F401


def find_out(options: Mapping[str, Any]) -> dict[str, Any]:
    """Have Inductor choose its instruction set; the settings that make it choose the same again, at no cost.

    It may run in a thread, in a copy of the caller's context, beside a trace: nothing of torch's state is changed.
    """
    from torch._inductor import config, cpu_vec_isa

    settings = _settings(options)
    pick = getattr(cpu_vec_isa, "pick_vec_isa", None)
    if pick is None:
        return {}
    try:
        with config.patch(settings):
            chosen = pick()
    except Exception:
        return {}  # no compiler, say: the first piece that needs one says so by name
    if settings and not _compiler_knows(chosen):
        cpu_vec_isa.valid_vec_isa_list.cache_clear()
        return {}
    return settings


def _settings(options: Mapping[str, Any]) -> dict[str, Any]:
    from torch._inductor import config

    known = hasattr(config, "cpp") and hasattr(config.cpp, "vec_isa_ok")
    if not known or config.cpp.vec_isa_ok is not None or SETTING in options:
        return {}
    return {SETTING: True}


def _compiler_knows(isa: Any) -> bool:
    """Whether the C++ compiler takes the flags of an instruction set."""
    from torch._inductor import cpp_builder

    try:
        command = [cpp_builder.get_cpp_compiler(), *isa.build_arch_flags().split()]
        done = subprocess.run(
            [*command, "-x", "c++", "-fsyntax-only", "-"], input=b"", capture_output=True, check=False, timeout=60
        )
    except Exception:
        return False  # no compiler, or none of this kind: Inductor's own way says what is wrong
    return done.returncode == 0

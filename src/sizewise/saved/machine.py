"""What a program's machine code needs of the machine it runs on."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Any

import torch

from .._version import __version__

FORMAT = 4
"""Raised when programs are written otherwise; others are passed over."""


def versions() -> dict[str, str]:
    """What a program was built with; each has to be the same where it is loaded."""
    return {
        "format": str(FORMAT),
        "sizewise": __version__,
        "torch": torch.__version__,
        "python": f"{sys.implementation.cache_tag}",
        "platform": f"{platform.system()} {platform.machine()}",
        "instruction_set": torch.backends.cpu.get_cpu_capability(),
    }


def processor_flags() -> list[str]:
    """The features the processor says it has; [] where the system does not tell.

    Libraries are built for the processor at hand (``-march=native``): one without some feature they use would end the
    process.
    """
    try:
        with Path("/proc/cpuinfo").open() as file:
            for line in file:
                if line.startswith(("flags", "Features")):
                    return sorted(line.partition(":")[2].split())
    except OSError:
        pass
    return []


_OF_THE_SYSTEM = {
    "hypervisor",
    "nopl",
    "constant_tsc",
    "nonstop_tsc",
    "tsc_known_freq",
    "rep_good",
    "cpuid",
    "aperfmperf",
}
"""Flags that say nothing of what code may run."""


def differences(saved: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(factor, saved, seen) for everything that keeps a program of ``saved`` versions and flags from running here."""
    here = versions()
    found = [
        (name, str(saved["versions"].get(name)), value)
        for name, value in here.items()
        if saved["versions"].get(name) != value
    ]
    missing = sorted(set(saved["processor"]) - set(processor_flags()) - _OF_THE_SYSTEM)
    if missing:
        found.append(("processor", f"one with {', '.join(missing[:8])}", f"one without ({len(missing)} missing)"))
    return found

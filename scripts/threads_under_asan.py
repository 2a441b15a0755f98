"""What a program does that was built with 2 threads and runs with 8, under AddressSanitizer; on two cores.

Run by hand: ``python scripts/threads_under_asan.py``. It starts itself with the sanitizer loaded: three times past the
entry check, which refuses such a call, and once through a bundle that was saved for both numbers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

WAYS = ("2 threads", "8 threads, past the check", "8 threads, through the check", "8 threads, from the bundle")


def main() -> None:
    library = subprocess.run(["g++", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    with tempfile.TemporaryDirectory() as name:
        compiler = Path(name) / "g++-asan"
        compiler.write_text('#!/bin/sh\nexec g++ -fsanitize=address -fno-omit-frame-pointer "$@"\n')
        compiler.chmod(0o755)
        environment = {
            **os.environ,
            "LD_PRELOAD": library.stdout.strip(),
            "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0",
            "CXX": str(compiler),
            "TORCHINDUCTOR_CACHE_DIR": f"{name}/inductor",
            "SIZEWISE_CACHE_DIR": f"{name}/cache",
        }
        for way in WAYS:
            command = [sys.executable, __file__, way, name]
            done = subprocess.run(command, capture_output=True, text=True, env=environment)
            found = [line for line in done.stderr.splitlines() if "ERROR: AddressSanitizer" in line]
            last = next(reversed((done.stdout + done.stderr).strip().splitlines()), "")
            print(f"{way}: exit {done.returncode}, {found[0].strip() if found else last}")


def child(way: str, folder: str) -> None:
    import torch

    import sizewise
    from sizewise import Dim

    class Sums(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sin().sum() + x.cos().amax()

    torch.set_num_threads(2)
    bundle = Path(folder) / "sums.sizewise"
    dims = {"x": {0: Dim("batch", 1, 512)}}
    fast = sizewise.compile(Sums().eval(), dynamic_shapes=dims, cudagraph_mode="NONE")
    fast.warmup(torch.randn(300, 512))
    if way == WAYS[0]:
        fast.save(bundle, threads=[2, 8], proved=False)
    else:
        torch.set_num_threads(8)
    if way == WAYS[3]:
        fast = sizewise.load(bundle, Sums().eval())
    x = torch.randn(300, 512)
    if way == WAYS[1]:
        (variant,) = fast.built.entries[0].program.variants
        seen = [variant.call((), 300, x) for _ in range(20)]
    else:
        seen = [fast(x) for _ in range(20)]
    torch.testing.assert_close(seen[-1], Sums()(x), rtol=1e-3, atol=1e-1)
    print("equal to eager")


if __name__ == "__main__":
    main() if len(sys.argv) == 1 else child(*sys.argv[1:])

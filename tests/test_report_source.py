"""Reports of programs that were not built here: they say whose figures they print, and import no compiler to do so."""

from __future__ import annotations

from pathlib import Path

from .bundle_support import bare, python, write_sources

REPORT = """
import sizewise
from sizewise import Dim
from model import Net

how = sys.argv[1]
shapes = {"x": {0: Dim("batch", 1, 16)}}
if how == "bundle":
    fast = sizewise.load("net.sizewise", Net().eval())
else:
    fast = sizewise.compile(Net().eval(), dynamic_shapes=shapes, cudagraph_mode="NONE").warmup(torch.randn(3, 4))
fast(torch.randn(5, 4))
text = str(fast.report())
report = fast.report()
tell(text=text, json=json.loads(report.to_json()), code=report.code, compilers=compiler_modules())
if how == "built":
    fast.save("net.sizewise", proved=False)
"""


def test_a_report_says_where_the_programs_are_from_and_imports_no_compiler(tmp_path: Path) -> None:
    folder = write_sources(tmp_path / "sources")
    cache = {"SIZEWISE_CACHE_DIR": str(tmp_path / "cache"), "SIZEWISE_DISABLE_COMPILE_CACHE": "0"}
    (built,) = python(REPORT, "built", folder=folder, **cache)
    assert "sizes equal to eager before serving" in built["text"] and "when it was built" not in built["text"]
    assert built["json"]["cache"]["source"] == "built here" and "from  " not in built["text"]
    for how, words in (("cache", "the cache, built 20"), ("bundle", "a bundle, built 20")):
        (told,) = python(REPORT, how, folder=folder, **cache, **bare(tmp_path))
        assert told["compilers"] == [], how
        assert f"  from      {words}" in told["text"] and told["json"]["cache"]["source"].startswith(words)
        assert "1 compiled when it was built" in told["text"]
        assert "sizes equal to eager when it was built" in told["text"] and "before serving" not in told["text"]
        assert told["json"]["sizes"] == built["json"]["sizes"] and "def call(" in told["code"]

"""Lists the messages of Python and of numpy, which other packages repeat; a template a line, holes written ``{}``.

    python scripts/list_messages.py [PREFIX ...]

Reads the interpreter that runs it and those installed under each PREFIX: the ``raise`` statements of the standard
library and the texts in the binaries of the interpreter and of its extension modules. Of numpy it reads the installed
one. Writes src/sizewise/reference/explain/messages/*.txt.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

OUT = Path(__file__).resolve().parent.parent / "src/sizewise/reference/explain/messages"
LETTERS, WORDS, LENGTH = 11, 3, 90
"""Letters and words that a message has at least, and characters at most: longer ones are no coincidence."""
NOT_OF_USE = frozenset(
    {
        *("test", "tests", "idlelib", "lib2to3", "distutils", "tkinter", "turtle.py", "turtledemo", "ensurepip"),
        *("site-packages", "msilib", "pydoc_data", "curses", "dbm", "venv", "encodings", "f2py", "_pyinstaller"),
    }
)
_FORMAT = re.compile(r"%(?:%|(?:\(\w+\))?[-+ #0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?[hlzjt]{0,2}[sdiuRSUVNTAcxXpfgGeEor])")
_TEXT = re.compile(rb"[\x20-\x7e]{12,160}(?=\x00)")
_NO_MESSAGE = re.compile(
    # C and its interfaces, grammars, signatures, texts of help, and what there is one of for each type
    r"->|[=!<>]=|&&|\|\||\w\(\w+ \*|\bexpr\b|\bstmt\b|while traversing|Py[A-Z]\w+_|Py_|__clinic|\.c:|@"
    r"|^\$|;array item|^-|^/|^[a-z]\W?[A-Z]|^(?:could not cast 'same_value'|required field)|\bNPY_|ufunc|simd"
    r"|argument \d is|^field |^[A-Z]\w+ field \"|^[A-Z]\w+ with |^\w+\([^)]*\)(?:$| ?--)|^[a-z]{1,4};"
    r"|^(?:Return|True if|Get |Set |Produce|Initialize|failed to (?:get|create|init|load|copy|set|add|import))"
)


def main() -> None:
    OUT.mkdir(exist_ok=True)
    prefixes = [Path(sys.base_prefix), *map(Path, sys.argv[1:])]
    python: set[str] = set()
    for prefix in prefixes:
        library = next(iter(sorted(prefix.glob("lib/python3.*/os.py")))).parent
        python |= {one for file in _sources(library) for one in _raised(file)}
        python |= {one for file in _binaries(prefix, library) for one in _texts(file)}
    python -= _help()
    _write("python", python, f"CPython's, of {', '.join(sorted(_version(one) for one in prefixes))}")
    numpy = importlib.import_module("numpy")
    root = Path(numpy.__file__).parent
    found = {one for file in _sources(root) for one in _raised(file)}
    found |= {one for file in root.glob("_core/_multiarray_umath*.so") for one in _texts(file)}
    _write("numpy", found - python, f"numpy's, of {numpy.__version__}")


def _version(prefix: Path) -> str:
    return next(prefix.glob("lib/python3.*/os.py")).parent.name.removeprefix("python")


def _write(name: str, templates: Iterable[str], whose: str) -> None:
    kept = sorted({one for text in templates if (one := " ".join(text.split())) and _counts(one)})
    head = f"# Messages that are {whose}; scripts/list_messages.py reads them off. A template a line.\n"
    (OUT / f"{name}.txt").write_text(head + "".join(f"{one}\n" for one in kept), encoding="utf-8")
    print(f"{name}: {len(kept)}")


def _counts(text: str) -> bool:
    literal = text.replace("{}", "")
    words = [word for word in text.split() if re.search(r"[A-Za-z{]{2}", word)]
    return (
        sum(map(len, re.findall(r"[^\W_]+", literal))) >= LETTERS
        and len(words) >= WORDS
        and len(text) <= LENGTH
        and not text.startswith("#")
    )


def _sources(root: Path) -> Iterator[Path]:
    for file in sorted(root.rglob("*.py")):
        if NOT_OF_USE.isdisjoint(file.relative_to(root).parts):
            yield file


def _raised(file: Path) -> Iterator[str]:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            yield _template(node.exc.args[0])


def _template(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return _holes(_template(node.left))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _template(node.left), _template(node.right)
        return f"{left or '{}'}{right or '{}'}" if left or right else ""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        return re.sub(r"\{[^{}]*\}", "{}", _template(node.func.value))
    return ""


def _holes(text: str) -> str:
    return _FORMAT.sub(lambda found: "%" if found[0] == "%%" else "{}", text)


def _binaries(prefix: Path, library: Path) -> Iterator[Path]:
    shared = sorted(prefix.glob("lib/libpython3.*.so.*")) or sorted(prefix.glob("bin/python3.[0-9]*[0-9]"))
    yield from shared[:1]
    for file in sorted((library / "lib-dynload").glob("*.so")):
        if not file.name.startswith(("_test", "_xx", "xx", "_tk", "_codecs_", "_curses", "_ctypes_test", "_gdbm")):
            yield file


def _texts(file: Path) -> Iterator[str]:
    for found in _TEXT.finditer(file.read_bytes()):
        text = _holes(found[0].decode("ascii"))
        if not _NO_MESSAGE.search(text):
            yield text


def _help() -> set[str]:
    """The lines of the help texts of what is written in C."""
    names = [*sys.builtin_module_names]
    folder = Path(sysconfig.get_paths()["stdlib"]) / "lib-dynload"
    names += [file.name.partition(".")[0] for file in folder.glob("*.so") if not file.name.startswith(("_tk", "_xx"))]
    lines: set[str] = set()
    for name in names:
        try:
            module = importlib.import_module(name)
        except Exception as problem:
            print(f"{name} is left out: {problem}", file=sys.stderr)
            continue
        for value in [module, *vars(module).values()]:
            for one in [value, *(vars(value).values() if isinstance(value, type) else ())]:
                lines |= {" ".join(line.split()) for line in str(getattr(one, "__doc__", "")).splitlines()}
    return lines


if __name__ == "__main__":
    main()

"""Kernels of C++ compiled together: each run of the C++ compiler costs more than most kernels do.

Inductor builds one library per kernel. On torch 2.13.0 with g++ an empty kernel takes 0.6 to 0.9 s of CPU, nearly all
of it for templates of torch's own header, and ten kernels of a Llama 12 s one by one against 2.3 s as one source.

Private API: ``CppPythonBindingsCodeCache`` with ``load_pybinding_async``, ``entry_function``, ``call_entry_function``
and ``extra_parse_arg``. Checked on torch 2.13.0 and 2.14.1. Where joining fails, kernels are built one by one.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

TOGETHER = 8
"""Kernels that are worth a C++ compiler of their own, where another core is free."""

_INCLUDE = re.compile(r"^#include\b.*$", re.MULTILINE)
_CONDITION = re.compile(r"^\s*#\s*(?:if|ifdef|ifndef|elif|else|define|undef)\b", re.MULTILINE)
_POINTER = re.compile(r"[A-Za-z_][\w:]*(?: [A-Za-z_]\w*)*\*")
_NUMBERS = frozenset({"int64_t", "uintptr_t", "float"})


@dataclass(frozen=True)
class Kernel:
    """One kernel's source, and the C++ types of its arguments."""

    argtypes: tuple[str, ...]
    source: str

    def can_be_joined(self) -> bool:
        """Whether the source may stand in a namespace beside others, and its arguments are of known kinds."""
        known = all(kind in _NUMBERS or _POINTER.fullmatch(kind) for kind in map(_plain, self.argtypes))
        return known and not _CONDITION.search(self.source)


def batches(kernels: Sequence[Kernel], workers: int) -> list[list[int]]:
    """The numbers of the kernels that are compiled together."""
    joined = [number for number, kernel in enumerate(kernels) if kernel.can_be_joined()]
    alone = [[number] for number in range(len(kernels)) if number not in joined]
    count = min(workers, -(-len(joined) // TOGETHER))
    return [joined[start::count] for start in range(count)] + alone


def build(kernels: Sequence[Kernel], cache: Any, submit: Callable[..., Any]) -> list[Callable[[], Any]]:
    """Start to build ``kernels`` with ``cache`` (``CppPythonBindingsCodeCache``); per kernel, what waits for it.

    What is returned raises what the C++ compiler raises for that kernel.
    """

    def alone(kernel: Kernel) -> Callable[[], Any]:
        load: Callable[[], Any] = cache.load_pybinding_async(list(kernel.argtypes), kernel.source, submit_fn=submit)
        return load

    if len(kernels) == 1:
        return [alone(kernels[0])]
    bindings = {
        "entry_function": "kernels",
        "call_entry_function": "return kernels(self);",
        "extra_parse_arg": _escaped(_bindings(kernels)),
    }
    joined: Any = type("JoinedKernels", (cache,), bindings)
    together = joined.load_pybinding_async([], _joined(kernels), submit_fn=submit)

    @functools.cache
    def found() -> list[Callable[[], Any]]:
        try:
            return [functools.partial(_same, kernel) for kernel in together()()]
        except Exception:
            return [alone(kernel) for kernel in kernels]  # if it is one kernel's fault, its own error says so

    return [functools.partial(_from, found, place) for place in range(len(kernels))]


def _same(kernel: Any) -> Any:
    return kernel


def _from(found: Callable[[], list[Callable[[], Any]]], place: int) -> Any:
    return found()[place]()


def _joined(kernels: Sequence[Kernel]) -> str:
    """One source of all kernels: each in a namespace, under a name of its own."""
    includes = dict.fromkeys(line for kernel in kernels for line in _INCLUDE.findall(kernel.source))
    parts = [
        f"namespace joined_{number} {{\n#define kernel kernel_{number}\n{_INCLUDE.sub('', kernel.source)}\n"
        f"#undef kernel\n}}\nusing joined_{number}::kernel_{number};\n"
        for number, kernel in enumerate(kernels)
    ]
    return "\n".join([*includes, *parts])


def _bindings(kernels: Sequence[Kernel]) -> str:
    calls = "\n".join(_binding(number, kernel) for number, kernel in enumerate(kernels))
    methods = ", ".join(
        f'{{"kernel_{number}", reinterpret_cast<PyCFunction>(kernel_{number}_py), METH_FASTCALL, ""}}'
        for number in range(len(kernels))
    )
    return _PREAMBLE + calls + _TABLE.replace("METHODS", methods).replace("COUNT", str(len(kernels)))


def _binding(number: int, kernel: Kernel) -> str:
    arguments = ", ".join(f"taken<{_plain(kind)}>(args[{place}])" for place, kind in enumerate(kernel.argtypes))
    name = f"kernel_{number}"
    return (
        _CALL.replace("NAME", name)
        .replace("COUNT", str(len(kernel.argtypes)))
        .replace("CALL", f"::joined_{number}::{name}({arguments})")
    )


def _plain(argtype: str) -> str:
    return argtype.replace("const ", "").strip()


def _escaped(text: str) -> str:
    """For ``str.format``."""
    return text.replace("{", "{{").replace("}", "}}")


_PREAMBLE = """
template <typename T> static inline T taken(PyObject* value) {
    static_assert(std::is_pointer_v<T>, "a pointer or a number");
    return static_cast<T>(_torchinductor_pyobject_tensor_data_ptr(value));
}
template <> inline int64_t taken<int64_t>(PyObject* value) {
    auto result = PyLong_AsSsize_t(value);
    if (result == -1 && PyErr_Occurred()) [[unlikely]] throw std::runtime_error("expected int arg");
    return result;
}
template <> inline uintptr_t taken<uintptr_t>(PyObject* value) {
    auto result = PyLong_AsVoidPtr(value);
    if (result == nullptr && PyErr_Occurred()) [[unlikely]] throw std::runtime_error("expected int arg");
    return reinterpret_cast<uintptr_t>(result);
}
template <> inline float taken<float>(PyObject* value) {
    auto result = PyFloat_AsDouble(value);
    if (result == -1.0 && PyErr_Occurred()) [[unlikely]] throw std::runtime_error("expected float arg");
    return static_cast<float>(result);
}
"""

_CALL = """
static PyObject* NAME_py(PyObject*, PyObject* const* args, Py_ssize_t count) {
    try {
        if (count != COUNT) [[unlikely]] throw std::runtime_error("requires COUNT args");
        CALL;
        Py_RETURN_NONE;
    } catch (std::exception const& problem) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, problem.what());
        return nullptr;
    } catch (...) {
        PyErr_SetString(PyExc_RuntimeError, "unhandled error");
        return nullptr;
    }
}
"""

_TABLE = """
static PyMethodDef joined_methods[] = {METHODS};
static PyObject* kernels(PyObject* library) {
    PyObject* found = PyTuple_New(COUNT);
    for (Py_ssize_t place = 0; found != nullptr && place < COUNT; ++place) {
        PyObject* kernel = PyCFunction_New(&joined_methods[place], library);
        if (kernel == nullptr) { Py_DECREF(found); return nullptr; }
        PyTuple_SET_ITEM(found, place, kernel);
    }
    return found;
}
"""

"""`sizewise.compile` in its forms."""

from __future__ import annotations

import difflib
import functools
import inspect
import os
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

from .config.env import check as check_environment
from .errors import state as errors
from .module import CompiledModule, Options, as_path

if TYPE_CHECKING:
    from .config.compilation import CompilationConfig

_CHOICES = {
    "outputs": ("copy", "static"),
    "on_miss": ("program", "error"),
    "on_outside": ("error", "eager"),
    "on_stale": ("error", "eager"),
}


def compile(
    target: Any = None,
    *,
    dynamic_shapes: Mapping[str, Any] | None = None,
    config: CompilationConfig | None = None,
    persistent: Sequence[str] = (),
    pad_values: Mapping[str, Any] | None = None,
    outputs: str = "copy",
    on_miss: str = "program",
    on_outside: str = "error",
    on_stale: str = "error",
    decode: Mapping[str, int] | None = None,
    inplace: bool = False,
    name: str | None = None,
    disable: bool = False,
    mode: str | None = None,
    **options: Any,
) -> Any:
    """Compile a module once; run it at every size its dims declare.

    ``target`` is a module, a plain function of tensors, a method bound to a module, or a module class;
    without it the result is a decorator. Nothing is traced before warm-up or the first call.

    Args:
        dynamic_shapes: argument -> {axis: Dim}; ``torch.export.Dim`` is accepted. None infers dims from
            the calls of ``warmup_many``; ``{}`` declares that no size changes.
        config: a `CompilationConfig`; ``options`` are its fields, as keywords, and ``mode`` is one of
            torch.compile's presets. Both together are one config: keywords win.
        on_outside: a call outside what was built raises (``"error"``) or runs the original (``"eager"``).
        on_stale: the same for a module whose tensors changed their layout.
        inplace: replace the instance's forward and return the instance itself.
        name: what errors and reports call the module.
        disable: return the target as it is.
        pad_values: argument -> the number that it is filled up with where a call is smaller than its capture; 0 for
            arguments that are not named. Arguments that are named, and those that look like masks, are taken to
            always hold it there.
        on_miss: a size in range that no capture serves runs the program (``"program"``) or raises (``"error"``).
        outputs: ``"copy"`` gives results to keep. ``"static"`` gives a capture's own memory, cut to the call's size,
            without a copy, and so not contiguous where an inner axis is cut. The next replay overwrites it, in any
            thread: `sizewise.graphs.is_current` tells, and `check_current` raises SW633. A call that no capture
            serves, or that comes while another one replays, runs the program, whose results are new tensors and
            current forever.
        decode: dim -> the size that it has in every decode batch, such as ``{"seq": 1}``. A call whose dims have these
            sizes is a decode batch, which ``cudagraph_mode`` FULL_AND_PIECEWISE (the default with ``decode``) and
            FULL_DECODE_ONLY capture whole; other calls replay piece by piece, or run the program.
        persistent: names of arguments that hold state, such as ``("past_key_values",)``: objects that a warm-up binds,
            whose tensors stay where they are and are written in place. Calls bring the same objects.

    Returns:
        A `CompiledModule` for a module, function or method; the class for a class; the target itself
        with ``inplace`` or ``disable``.

    Raises:
        BadTarget (SW509), BadOption (SW510), NotAvailable (SW508), ConfigError.
    """
    check_environment()
    _check_choices({"outputs": outputs, "on_miss": on_miss, "on_outside": on_outside, "on_stale": on_stale})
    names = _checked_names(persistent)
    decode = _checked_decode(decode)
    config = _merged(config, mode, options, decode)
    pads = _checked_pads(pad_values)
    settings = Options(dynamic_shapes, config, on_outside, on_stale, name, on_miss, pads, decode, outputs)
    made = functools.partial(_compile_target, options=settings, inplace=inplace, disable=disable, persistent=names)
    return made if target is None else made(target)


def _check_choices(chosen: Mapping[str, str]) -> None:
    for option, value in chosen.items():
        if value not in _CHOICES[option]:
            words = f"one of {', '.join(map(repr, _CHOICES[option]))}"
            todo = f"pass {words}; left out it is {_CHOICES[option][0]!r}"
            raise errors.BadOption(option=option, seen=value, legal=words, todo=todo)


def _checked_names(names: Any) -> tuple[str, ...]:
    """Raises BadOption (SW510)."""
    plain = isinstance(names, (tuple, list)) and all(isinstance(name, str) for name in names)
    if not plain or len(set(names)) != len(names):
        todo = 'name each argument that holds state once, such as persistent=("past_key_values",)'
        raise errors.BadOption(option="persistent", seen=names, legal="a tuple of names of arguments", todo=todo)
    return tuple(names)


def _checked_pads(pads: Any) -> Mapping[str, float | int | bool]:
    """The value of each argument, where it is filled up. Raises BadOption (SW510)."""
    if pads is None:
        return {}
    plain = isinstance(pads, Mapping) and all(
        isinstance(path, str) and type(value) in (int, float, bool) for path, value in pads.items()
    )
    if not plain:
        legal = "a dict of numbers by argument"
        todo = 'name the arguments that have a pad of their own, such as pad_values={"attention_mask": 0}'
        raise errors.BadOption(option="pad_values", seen=pads, legal=legal, todo=todo)
    return dict(pads)


def _checked_decode(decode: Any) -> Mapping[str, int] | None:
    """Raises BadOption (SW510)."""
    if decode is None:
        return None
    plain = isinstance(decode, Mapping) and all(
        isinstance(name, str) and type(size) is int and size >= 1 for name, size in decode.items()
    )
    if not plain or not decode:
        todo = (
            'name the dims that tell a decode batch, with their sizes there, such as decode={"seq": 1}; or leave it out'
        )
        raise errors.BadOption(option="decode", seen=decode, legal="a dict of sizes by dim", todo=todo)
    return dict(decode)


def _merged(
    config: CompilationConfig | None,
    mode: str | None,
    options: Mapping[str, Any],
    decode: Mapping[str, int] | None,
) -> CompilationConfig | None:
    if config is None and mode is None and not options and decode is None:
        return None  # the defaults, known without the config's class: serving what was built before needs no more
    from .config.compilation import CompilationConfig
    from .config.presets import preset

    _refuse_typos(options)
    if config is not None and not isinstance(config, CompilationConfig):
        todo = "pass settings as keywords, compile(model, **settings), or as config=CompilationConfig(**settings)"
        raise errors.BadOption(option="config", seen=config, legal="a sizewise.CompilationConfig", todo=todo)
    changes = {**(preset(mode) if mode is not None else {}), **options}
    if changes or config is None:
        config = config.replace(**changes) if config is not None else CompilationConfig(**changes)
    if config is not None:
        # What can be refused without knowing the dims is refused here, not at warm-up.
        # How often to warm up is a matter of the device, which is not known yet.
        config.replace(cudagraph_num_of_warmups=None).resolve(decode=decode)
    return config


def _refuse_typos(options: Mapping[str, Any]) -> None:
    """A keyword that is nearly one of `compile`'s own is not a setting of the config."""
    from .config.compilation import CompilationConfig
    from .config.stock import unknown_option

    own = [name for name in inspect.signature(compile).parameters if name not in ("target", "options")]
    for name, value in options.items():
        if name in CompilationConfig.model_fields or name in CompilationConfig.elsewhere:
            continue
        near = difflib.get_close_matches(name, own, n=1, cutoff=0.85)
        if near:
            raise errors.UnknownOption(name=name, near=near[0])
        raise unknown_option(name, value, own)


def _compile_target(
    target: Any, *, options: Options, inplace: bool, disable: bool, persistent: tuple[str, ...] = ()
) -> Any:
    if isinstance(target, CompiledModule):
        name = target._sw_owner
        todo = (
            "use it as it is; for other settings compile the original again: sizewise.compile(fast.__wrapped__, ...)."
        )
        raise errors.BadTarget(seen=f"{name}, which is compiled already", todo=todo)
    if type(target).__name__ == "OptimizedModule":
        todo = "pass the module in it: sizewise.compile(model._orig_mod, ...)."
        raise errors.BadTarget(seen="a module that torch.compile has wrapped", todo=todo)
    if isinstance(target, nn.Module) and isinstance(target.__dict__.get("forward"), InPlaceForward):
        todo = "use it as it is: model.forward.warmup(...) builds it again; other settings need a new instance."
        raise errors.BadTarget(seen=f"{type(target).__name__}, which was compiled in place already", todo=todo)
    if disable:
        return target
    if persistent:
        return _with_state(target, options, persistent, inplace)
    if isinstance(target, type) and issubclass(target, nn.Module):
        return _compiled_class(target, options)
    if isinstance(target, nn.Module):
        return _in_place(target, options) if inplace else CompiledModule(target, options)
    if isinstance(target, types.MethodType) and isinstance(target.__self__, nn.Module):
        return CompiledModule(target.__self__, options, method=target.__name__)
    if isinstance(target, types.FunctionType):
        return _compiled_function(target, options)
    todo = "pass an nn.Module instance, a plain function, or use it as a decorator on either."
    raise errors.BadTarget(seen=f"{target!r} ({type(target).__name__})", todo=todo)


def _with_state(target: Any, options: Options, names: tuple[str, ...], inplace: bool) -> Any:
    from .persistent import PersistentModule

    method = isinstance(target, types.MethodType) and isinstance(target.__self__, nn.Module)
    if inplace or not (method or isinstance(target, nn.Module)):
        what = "inplace=True" if inplace else f"a {type(target).__name__}"
        hint = "pass the module itself, or its method, and use what compile returns."
        raise errors.NotAvailable(what=f"persistent arguments with {what}", hint=hint)
    if method:
        return PersistentModule(target.__self__, options, names, target.__name__)
    return PersistentModule(target, options, names)


def load(
    path: str | os.PathLike[str],
    target: Any,
    *,
    on_outside: str = "error",
    on_stale: str = "error",
    name: str | None = None,
) -> CompiledModule:
    """The programs that `CompiledModule.save` wrote, serving for ``target``: no trace, no compiler.

    ``target`` is a module of the class they were built for, in evaluation mode, with parameters of the same shapes and
    dtypes, or the function. A bundle holds code: load one only from where you would install a package.

    Raises:
        TrainingMode (SW214): the module, or a part of it, is in training mode.
        NotABundle (SW611): the file is none, or is damaged.
        BundleDiffers (SW612): it was built for another module, source, version or machine; names what differs.
        BadTarget (SW509), BadOption (SW510).
    """
    check_environment()
    _check_choices({"on_outside": on_outside, "on_stale": on_stale})
    if isinstance(target, CompiledModule) or not isinstance(target, nn.Module | types.FunctionType):
        todo = "pass the nn.Module, or the plain function, that the programs are for."
        raise errors.BadTarget(seen=f"{target!r} ({type(target).__name__})", todo=todo)
    options = Options(None, None, on_outside, on_stale, name)
    compiled = (
        _compiled_function(target, options)
        if isinstance(target, types.FunctionType)
        else CompiledModule(target, options)
    )
    return compiled._sw_load(as_path(path))


class FunctionModule(nn.Module):
    """A plain function as a module without parameters."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.forward = function
        self.eval()


def _compiled_function(function: Callable[..., Any], options: Options) -> CompiledModule:
    named = Options(**{**vars(options), "name": options.name or function.__name__})
    compiled = CompiledModule(FunctionModule(function), named)
    compiled.__dict__["__name__"] = function.__name__
    compiled.__dict__["__doc__"] = function.__doc__
    return compiled


class InPlaceForward:
    """The forward of an instance that was compiled in place: ``model.forward.warmup(...)``, ``.report()``.

    ``compiled`` is the `CompiledModule` behind it, whose attributes it has.
    """

    def __init__(self, compiled: CompiledModule) -> None:
        self.compiled = compiled

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.compiled(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise errors.ForwardedMissing(owner="InPlaceForward", name=name, wrapped="CompiledModule")
        return getattr(self.__dict__["compiled"], name)

    @property
    def __signature__(self) -> Any:
        return self.compiled._sw_signature().signature

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise errors.NotPicklable(owner=self.compiled._sw_owner)

    __deepcopy__ = None


def _in_place(module: nn.Module, options: Options) -> nn.Module:
    """Replace the instance's forward; hooks of the instance itself still run around it."""
    original = module.forward

    def undo(twin: nn.Module) -> None:
        if isinstance(original, types.MethodType) and original.__self__ is module:
            twin.__dict__["forward"] = types.MethodType(original.__func__, twin)
        else:
            twin.__dict__["forward"] = original

    compiled = CompiledModule(module, options, method="forward", original=original, prepare_twin=undo)
    module.forward = InPlaceForward(compiled)
    return module


def _compiled_class(cls: type[nn.Module], options: Options) -> type[nn.Module]:
    """A subclass whose instances are compiled in place."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        super(compiled, self).__init__(*args, **kwargs)
        _in_place(self, options)

    namespace = {
        "__init__": functools.wraps(cls.__init__)(__init__),
        "__module__": cls.__module__,
        "__doc__": cls.__doc__,
    }
    compiled: Any = type(cls.__name__, (cls,), namespace)
    compiled.__qualname__ = cls.__qualname__
    subclass: type[nn.Module] = compiled
    return subclass

"""Every kind of guard torch 2.11 to 2.14 makes, and where Sizewise takes it.

``proved``: decided over the declared ranges (`trace.shapes`), or kept as an entry check where two dims have to
be equal. ``entry``: part of the entry check or of a program's key. ``ambient``: part of the ambient state.
``snapshot``: the value it is about is kept and compared at every call. ``implied``: says nothing that another
guard's snapshot does not say as well. ``refused``: a program that needs it is not built.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..traced import GuardRecord

TREATMENT: dict[str, tuple[str, str]] = {
    # sizes
    "SHAPE_ENV": ("proved", "conditions on sizes are settled over the declared ranges"),
    "EQUALS_MATCH": ("snapshot", "the value is compared"),
    # tensors
    "COW_TENSOR_MATCH": ("implied", "a copy-on-write tensor computes what any other does"),
    "TENSOR_MATCH": ("entry", "arguments are checked at entry, the module's tensors when they are fetched"),
    "DISPATCH_KEY_SET_MATCH": ("refused", "a guard on dispatch keys belongs to a tensor subclass"),
    "DTENSOR_SPEC_MATCH": ("refused", "DTensor is not supported yet"),
    "FAKE_SCRIPT_TYPE_MATCH": ("refused", "TorchScript objects are not supported"),
    "TENSOR_SUBCLASS_METADATA_MATCH": ("refused", "tensor subclasses are not supported yet"),
    "GRAD_MODE": ("entry", "every call runs without gradients"),
    "WEAKREF_ALIVE": ("implied", "the module and what is bound of it are held"),
    # ambient state
    "DETERMINISTIC_ALGORITHMS": ("ambient", "deterministic algorithms"),
    "GLOBAL_STATE": ("ambient", "autocast, default dtype, threads and the like"),
    "TORCH_FUNCTION_STATE": ("ambient", "torch function modes"),
    "DEFAULT_DEVICE": ("ambient", "the default device"),
    "FSDP_TRAINING_STATE": ("refused", "FSDP modules are not supported yet"),
    "DUAL_LEVEL": ("ambient", "forward-mode gradients run the original"),
    "FUNCTORCH_STACK_MATCH": ("ambient", "functorch transforms run the original"),
    "AUTOGRAD_SAVED_TENSORS_HOOKS": ("entry", "every call runs without gradients"),
    # values
    "RETURNED": ("snapshot", "what is returned as it is is compared"),
    "CONSTANT_MATCH": ("snapshot", "the value is compared"),
    "CONSTANT_SUBCLASS_MATCH": ("snapshot", "the value is compared"),
    "BOOL_MATCH": ("snapshot", "the value is compared"),
    "NONE_MATCH": ("snapshot", "the value is compared"),
    "NOT_NONE_MATCH": ("snapshot", "the value is compared"),
    "COUNT_ITERATOR_MATCH": ("refused", "an iterator has a state that a replay would not move"),
    "RANGE_ITERATOR_MATCH": ("refused", "an iterator has a state that a replay would not move"),
    "TUPLE_ITERATOR_LEN": ("refused", "an iterator has a state that a replay would not move"),
    # identity and class
    "ID_MATCH": ("snapshot", "the same object has to be there"),
    "CLASS_MATCH": ("snapshot", "the same object has to be there"),
    "FUNCTION_MATCH": ("snapshot", "the same object has to be there"),
    "CLOSURE_MATCH": ("snapshot", "the same object has to be there"),
    "BUILTIN_MATCH": ("snapshot", "the same object has to be there"),
    "MODULE_MATCH": ("snapshot", "the same object has to be there"),
    "NN_MODULE": ("snapshot", "the same object has to be there"),
    "TYPE_MATCH": ("snapshot", "the same object has to be there"),
    "DUPLICATE_INPUT": ("snapshot", "the same object has to be in both places"),
    "MAPPING_KEYS_CHECK": ("snapshot", "the keys are compared"),
    # attributes and containers
    "HASATTR": ("snapshot", "the owner's attributes are counted"),
    "NOT_PRESENT_IN_GENERIC_DICT": ("snapshot", "the owner's attributes are counted"),
    "EMPTY_NN_MODULE_HOOKS_DICT": ("snapshot", "hooks are counted"),
    "DICT_CONTAINS": ("snapshot", "the keys are compared"),
    "DICT_NOT_CONTAINS": ("snapshot", "the keys are compared"),
    "DICT_KEYS_MATCH": ("snapshot", "the keys are compared"),
    "DICT_VERSION": ("snapshot", "the keys are compared"),
    "SET_CONTAINS": ("snapshot", "the members are compared"),
    "SET_NOT_CONTAINS": ("snapshot", "the members are compared"),
    "SEQUENCE_LENGTH": ("snapshot", "the length is compared"),
    "OPAQUE_OBJ_GUARD_FN_MATCH": ("refused", "an opaque object decides by code of its own"),
}
"""Kind of guard -> (where it goes, in words). A kind that is not here refuses the program."""


def in_words(guards: Iterable[GuardRecord]) -> list[str]:
    """Every guard: what it is on, where it went, and why that is enough."""
    lines = []
    for guard in guards:
        treatment, why = TREATMENT[guard.kind]
        lines.append(f"{guard.in_words}: {treatment} ({why})")
    return list(dict.fromkeys(lines))

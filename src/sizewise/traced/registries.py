"""What `nn.Module` calls its own."""

REGISTRIES = (
    "_modules",
    "_buffers",
    "_parameters",
    "_non_persistent_buffers_set",
    "_forward_hooks",
    "_forward_pre_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
)
"""What a module keeps its parts, tensors and hooks in."""

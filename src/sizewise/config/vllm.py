"""Settings of vLLM that Sizewise does not have, and where what they do belongs.

Someone who brings a vLLM config is told about each by name. A name leaves this table when it becomes
a field.
"""

from __future__ import annotations

_CAPTURES = "the captures it belongs to are not available yet in Sizewise"
_YOCO = "it serves one model family's decoder replay inside vLLM"
_STATE = "it is state that vLLM writes, not a setting; Sizewise reports what was built in report()"
_REMOVED = "vLLM has removed it"

COMPILATION: dict[str, str] = {
    "debug_dump_path": "dumps of what was built are not available yet in Sizewise",
    "compile_cache_save_format": "programs in Sizewise's cache have one format",
    "ir_enable_torch_wrap": "it belongs to vLLM's own operator IR",
    "compile_mm_encoder": "give the encoder to sizewise.compile as a module of its own",
    "cudagraph_decoder_replay": _YOCO,
    "decoder_replay_cudagraph_capture_sizes": _YOCO,
    "decoder_replay_trim_threshold": _YOCO,
    "cudagraph_copy_inputs": _CAPTURES,
    "cudagraph_specialize_lora": "it belongs to an engine's LoRA adapters, which Sizewise does not know",
    "use_inductor_graph_partition": "Sizewise always splits the graph before Inductor, at splitting_ops",
    "fast_moe_cold_start": "it belongs to vLLM's mixture-of-experts layers",
    "local_cache_dir": _STATE,
    "enabled_custom_ops": _STATE,
    "disabled_custom_ops": _STATE,
    "traced_files": _STATE,
    "compilation_time": _STATE,
    "encoder_compilation_time": _STATE,
    "static_forward_context": _STATE,
    "static_all_moe_layers": _STATE,
    "level": f"{_REMOVED}; the setting is mode",
    "use_inductor": f"{_REMOVED}; the setting is backend",
    "use_cudagraph": f"{_REMOVED}; the setting is cudagraph_mode",
    "full_cuda_graph": f"{_REMOVED}; the setting is cudagraph_mode",
}

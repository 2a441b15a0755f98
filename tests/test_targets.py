"""What a TARGET stands for, and what is said of everything that is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from sizewise.cli.model_directory import load_model_directory
from sizewise.cli.targets import check_example, load_target
from sizewise.errors import command as errors
from sizewise.errors import trace as trace_errors

from .command_line import line_of, project_in


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with project_in(tmp_path, monkeypatch) as directory:
        yield directory


def refused(text: str) -> str:
    with pytest.raises(errors.BadTargetSpec) as caught:
        load_target(text)
    return str(caught.value)


# -- factories


@pytest.mark.parametrize("text", ["app.py:make", "./app.py:make", "app:make"])
def test_a_factory_by_file_and_by_module(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    target = load_target(text)
    assert type(target.model).__name__ == "Net"
    assert target.args == () and list(target.kwargs) == ["x"]
    assert target.dynamic_shapes is not None and "x" in target.dynamic_shapes
    check_example(target)
    printed = capsys.readouterr()
    # stdout is the command's answer.
    assert printed.out == "" and "printed by the factory" in printed.err


def test_a_factory_with_positional_examples_and_one_of_a_function() -> None:
    target = load_target("app.py:make_positional")
    assert len(target.args) == 1 and target.kwargs == {}
    assert callable(load_target("app.py:make_function").model)


def test_a_module_in_a_package_and_a_file_beside_others(project: Path) -> None:
    package = project / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "model.py").write_text("from app import make\n")
    assert load_target("package.model:make").kwargs.keys() == {"x"}
    (package / "neighbour.py").write_text("WIDTH = 4\n")
    (package / "script.py").write_text(
        "import torch\nfrom neighbour import WIDTH\n"
        "def make():\n    return torch.nn.Linear(WIDTH, 1).eval(), {'input': torch.ones(2, WIDTH)}, {}\n"
    )
    assert load_target("package/script.py:make").model.in_features == 4


def test_a_file_may_have_the_name_of_a_library(project: Path) -> None:
    (project / "torch.py").write_text((project / "app.py").read_text().replace("import torch\n", "", 1))
    with pytest.raises(errors.TargetFailed, match=r"torch\.py"):
        load_target("torch.py:make")  # its own `torch.randn` has no torch; this process keeps the real one
    assert torch.randn(1).shape == (1,)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("app.py", "names no factory; write one of app.py:make, app.py:make_positional"),
        ("app.py:", "nothing stands after the colon"),
        (":make", "nothing stands before the colon"),
        ("app.py:mak", "app.py has no attribute 'mak'; near it: make"),
        ("ap.py:make", "the file ap.py does not exist; near it: app.py"),
        ("nowhere/app.py:make", "there is no directory nowhere either"),
        ("app.py/x:make", "does not exist"),
        ("ap:make", "there is no module 'ap'; near it: app"),
        ("app.inner:make", "there is no module 'app.inner'"),
        ("no-name:make", "neither the name of a module nor a path"),
        ("minilm", "there is no such directory, and no colon"),
        (".", "has no config.json"),
        ("app.py:needs_size", "needs_size takes size, and a factory is called without arguments"),
        ("app.py:NET", "NET is a Net, not a function"),
        ("app.py:NUMBER", "NUMBER is an int, not a function"),
    ],
)
def test_what_is_no_target(text: str, said: str) -> None:
    message = refused(text)
    assert said in message
    assert "package.module:factory" in message


@pytest.mark.parametrize(
    ("text", "place", "cause"),
    [
        ("app.py:fails", 'raise ValueError("no', "ValueError: no [weights] here"),
        ("app:fails", 'raise ValueError("no', "ValueError: no [weights] here"),
        ("app.py:imports_what_is_missing", "import not_installed", "No module named 'not_installed'"),
        ("app.py:leaves", "raise SystemExit", "SystemExit: 2"),
    ],
)
def test_a_factory_that_raises_is_named_with_its_line(text: str, place: str, cause: str) -> None:
    with pytest.raises(errors.TargetFailed) as caught:
        load_target(text)
    assert caught.value.fields["where"] == f"app.py:{line_of(place)}"
    assert cause in str(caught.value) and "second line" not in str(caught.value)
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    ("source", "line", "cause"),
    [
        ("x = 1\ndef f(:\n", 2, "SyntaxError"),
        ("\n\nimport not_installed\n", 3, "ModuleNotFoundError"),
        ("import sys\nsys.exit('this is a script')\n", 2, "SystemExit: this is a script"),
        ("import json\njson.loads('{')\n", 2, "JSONDecodeError"),
    ],
)
@pytest.mark.parametrize("text", ["broken.py:f", "broken:f"])
def test_a_file_that_raises_is_named_with_its_line(
    project: Path, text: str, source: str, line: int, cause: str
) -> None:
    (project / "broken.py").write_text(source)
    with pytest.raises(errors.TargetFailed) as caught:
        load_target(text)
    # The user's line, not the library's that it called.
    assert caught.value.fields["where"] == f"broken.py:{line}"
    assert cause in str(caught.value)


def test_an_error_that_names_itself_is_kept() -> None:
    with pytest.raises(trace_errors.BadDim):
        load_target("app.py:bad_dim")


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("None", "a NoneType"),
        ("nn.Linear(2, 2)", "a Linear"),
        ("(nn.Linear(2, 2), {})", "a tuple of 2"),
        ("(3, {}, {})", "the model is neither a torch.nn.Module nor a function"),
        ("(nn.Linear(2, 2), [1], {})", "example_kwargs is not a dict"),
        ("(nn.Linear(2, 2), {1: 2}, {})", "example_kwargs is not a dict"),
        ("(nn.Linear(2, 2), torch.ones(2), {}, {})", "example_args is not a tuple"),
        ("(nn.Linear(2, 2), {}, [1])", "dynamic_shapes is not a dict"),
    ],
)
def test_a_factory_that_returns_something_else(project: Path, returned: str, said: str) -> None:
    (project / "odd.py").write_text(f"import torch\nfrom torch import nn\ndef make():\n    return {returned}\n")
    with pytest.raises(errors.BadFactory) as caught:
        load_target("odd.py:make")
    assert said in str(caught.value) and "example_args" in str(caught.value)


def test_a_model_that_fails_on_its_own_example() -> None:
    target = load_target("app.py:wrong_width")
    with pytest.raises(errors.ExampleFails) as caught:
        check_example(target)
    assert caught.value.fields["where"] == f"app.py:{line_of('return self.second')}"
    assert "cannot be multiplied" in str(caught.value)


# -- model directories


def small_bert(**changes: int) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return transformers.BertModel(transformers.BertConfig(vocab_size=50, **{**sizes, **changes}))


def test_a_text_model_without_a_tokenizer(project: Path) -> None:
    small_bert(max_position_embeddings=24).save_pretrained(project / "bert")
    target = load_target("bert")
    assert not target.model.training
    assert list(target.kwargs) == ["input_ids", "attention_mask"]
    assert target.kwargs["input_ids"].max() < 50
    assert target.kwargs["attention_mask"].unique().tolist() == [0, 1]
    assert target.dynamic_shapes is not None
    batch, seq = target.dynamic_shapes["input_ids"].values()
    assert (batch.min, batch.max, seq.min, seq.max) == (1, 32, 1, 24)
    check_example(target)


def test_a_text_model_with_a_tokenizer(project: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    words = ["[PAD]", "[UNK]", "a", "short", "one", "another", "sentence", "."]
    model = tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
    small_bert().save_pretrained(project / "bert")
    fast.save_pretrained(project / "bert")
    _, kwargs, shapes = load_model_directory(project / "bert")
    assert kwargs["attention_mask"].unique().tolist() == [0, 1]
    assert int(kwargs["input_ids"].max()) < len(words)
    assert shapes["input_ids"][1].max == 128


def test_an_image_model(project: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=16, patch_size=8
    )
    transformers.ViTModel(config).save_pretrained(project / "vit")
    target = load_target("vit")
    assert target.kwargs["pixel_values"].shape == (2, 3, 16, 16)
    assert target.dynamic_shapes is not None and list(target.dynamic_shapes["pixel_values"]) == [0]
    check_example(target)


def test_a_model_without_examples_of_its_own_is_refused(project: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.WhisperConfig(
        vocab_size=60, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, num_mel_bins=8,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    transformers.WhisperModel(config).save_pretrained(project / "whisper")
    with pytest.raises(errors.UnsupportedModelDirectory, match=r"input_features and is an encoder with a decoder"):
        load_target("whisper")


def test_a_directory_that_cannot_be_read(project: Path) -> None:
    pytest.importorskip("transformers")
    (project / "broken").mkdir()
    (project / "broken" / "config.json").write_text('{"model_type": "no-such-model"}')
    with pytest.raises(errors.TargetFailed, match="loading the model in broken"):
        load_target("broken")


def test_without_transformers_the_extra_is_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "model").mkdir()
    (project / "model" / "config.json").write_text("{}")
    import sys

    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(errors.MissingExtra, match=r"sizewise\[demo\]"):
        load_target("model")

import shutil
import sys

import pytest

from calmoe.data.text import token_ids
from calmoe.errors import InputError
from calmoe.text_encoders import (
    encoder_digest,
    encoder_folder,
    load_tokenizer,
    tokenizer_files,
    weights_files,
)
from encoders import save_encoder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("encoder"))


def test_the_digest_is_of_the_contents_wherever_they_lie(encoder, tmp_path):
    copy = shutil.copytree(encoder, tmp_path / "elsewhere")
    assert encoder_digest(str(copy)) == encoder_digest(str(encoder))
    (copy / "tokenizer.json").unlink()  # the data's fingerprint knows the tokens
    assert encoder_digest(str(copy)) == encoder_digest(str(encoder))
    for name in ("config.json", "model.safetensors"):
        copy = shutil.copytree(encoder, tmp_path / name)
        (copy / name).write_bytes((copy / name).read_bytes() + b" ")
        assert encoder_digest(str(copy)) != encoder_digest(str(encoder))


@pytest.mark.parametrize(
    ("missing", "check", "named"),
    [
        ("tokenizer.json", tokenizer_files, r"has no tokenizer: .*tokenizer\.json .* is missing"),
        ("config.json", weights_files, r"config\.json is missing"),
        ("model.safetensors", weights_files, r"model\.safetensors is missing"),
    ],
)
def test_a_file_that_is_missing_is_named(encoder, tmp_path, missing, check, named):
    copy = shutil.copytree(encoder, tmp_path / "copy")
    check(copy)
    (copy / missing).unlink()
    with pytest.raises(InputError, match=named) as refusal:
        check(copy)
    assert str(copy) in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("content", [b"{broken", b"[]", b"\xff", b"[" * 100_000])
@pytest.mark.parametrize("check", [load_tokenizer, weights_files])
def test_a_broken_configuration_is_not_blamed_on_the_tokenizer(encoder, tmp_path, content, check):
    copy = shutil.copytree(encoder, tmp_path / "copy")
    (copy / "config.json").write_bytes(content)
    with pytest.raises(InputError, match=r"config\.json is no whole JSON table: save the model again"):
        check(copy)


def test_a_name_that_is_no_folder_is_asked_from_the_hub(encoder, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub, "snapshot_download", lambda name, allow_patterns: str(encoder))
    assert encoder_folder("some/model") == encoder


def test_what_the_hub_does_not_give_is_one_line(monkeypatch):
    hub = pytest.importorskip("huggingface_hub")

    def offline(name, allow_patterns):
        raise ConnectionError("no network\nand many more lines")

    monkeypatch.setattr(hub, "snapshot_download", offline)
    with pytest.raises(InputError, match=r"no folder no/such, and the .* hub gave no model .*\(no network\)"):
        encoder_folder("no/such")


def test_without_transformers_it_says_what_to_install(encoder, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError, match=r"pip install 'calmoe\[text\]'"):
        token_ids(["a"], str(encoder))

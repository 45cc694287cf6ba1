import pytest
import torch

from calmoe.data import text
from calmoe.data.text import token_ids
from calmoe.errors import InputError
from calmoe.text_encoders import PADDING
from encoders import WORDS, save_encoder, save_tokenizer


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return str(save_encoder(tmp_path_factory.mktemp("encoder")))


def test_texts_are_cut_and_filled_up(encoder):
    ids = token_ids(["You are kind!", "", "bad " * 500], encoder)
    you, are, kind = (5 + WORDS.index(word) for word in ("you", "are", "kind"))
    assert ids.dtype == torch.int32
    assert ids.shape == (3, 128)
    assert ids[0].tolist() == [2, you, are, kind, 1, 3] + [PADDING] * 122
    assert ids[1].tolist() == [2, 3] + [PADDING] * 126
    assert (ids[2] != PADDING).all()
    assert ids[2, -1] == 3  # the end is told, as in the paper's tokenizer


def test_chunks_make_no_difference(encoder, monkeypatch):
    texts = [f"{a} {b}" for a in WORDS for b in WORDS]
    whole = token_ids(texts, encoder)
    monkeypatch.setattr(text, "CHUNK", 17)
    assert torch.equal(token_ids(texts, encoder), whole)


def test_the_second_time_is_read_from_the_cache(encoder, tmp_path, monkeypatch):
    first = token_ids(["good man", "bad"], encoder, tmp_path)
    monkeypatch.setattr(text, "_tokenise", lambda *_: pytest.fail("tokenised again"))
    assert torch.equal(token_ids(["good man", "bad"], encoder, tmp_path), first)


def test_other_texts_and_other_tokenizers_are_not_mistaken_for_it(encoder, tmp_path):
    token_ids(["good", "bad"], encoder, tmp_path)
    assert not torch.equal(*token_ids(["bad", "good"], encoder, tmp_path))
    save_tokenizer(tmp_path / "other", words=WORDS[::-1])
    ours, theirs = (token_ids(["good", "bad"], e, tmp_path) for e in (encoder, str(tmp_path / "other")))
    assert not torch.equal(ours, theirs)
    assert len(list((tmp_path / ".calmoe-cache").iterdir())) == 3


def test_a_damaged_cache_is_found_and_written_anew(encoder, tmp_path):
    first = token_ids(["good man", "bad"], encoder, tmp_path)
    (path,) = (tmp_path / ".calmoe-cache").iterdir()
    whole = path.read_bytes()
    flipped = whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:]
    for damaged in (whole[: len(whole) // 2], b"", flipped):
        path.write_bytes(damaged)
        assert torch.equal(token_ids(["good man", "bad"], encoder, tmp_path), first)
        assert path.read_bytes() == whole


def test_a_folder_that_cannot_be_written_to_costs_the_cache_only(encoder, tmp_path):
    (tmp_path / ".calmoe-cache").write_text("a file where the cache would be")
    assert len(token_ids(["good"], encoder, tmp_path)) == 1


def test_an_encoder_must_be_given():
    with pytest.raises(InputError, match="--set weights=DIR"):
        token_ids(["good"], "")


def test_a_damaged_tokenizer_is_one_line(encoder, tmp_path):
    save_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(InputError, match=f"the tokenizer in {tmp_path} cannot be read") as refusal:
        token_ids(["good"], str(tmp_path))
    assert "\n" not in str(refusal.value)

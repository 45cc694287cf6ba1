import shutil

import pytest
import safetensors.torch
import torch

from calmoe.backbones import build_backbone
from calmoe.backbones.encoder import Encoder, masked_mean
from calmoe.data.text import token_ids
from calmoe.errors import InputError
from calmoe.text_encoders import PADDING
from encoders import WORDS, save_encoder, save_tokenizer

TEXTS = ["you are a good man", "bad", "the kind and awful persons . . ."]


@pytest.fixture(scope="module", params=["distilbert", "bert"])
def folder(request, tmp_path_factory):
    return str(save_encoder(tmp_path_factory.mktemp("encoder"), kind=request.param))


@pytest.fixture(scope="module")
def ids(folder):
    return token_ids(TEXTS, folder)


def test_pooling_is_of_the_models_own_hidden_states(folder, ids):
    """Against each text read alone, without padding and without our class."""
    from transformers import AutoModel

    model = AutoModel.from_pretrained(folder).eval()
    for pooling in ("cls", "mean"):
        features = build_backbone("encoder", (128,), weights=folder, pooling=pooling).eval()(ids)
        for row, feature in zip(ids, features, strict=True):
            hidden = model(input_ids=row[row != PADDING][None].long()).last_hidden_state[0]
            expected = hidden[0] if pooling == "cls" else hidden.mean(0)
            torch.testing.assert_close(feature, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_more_padding_changes_nothing(folder, ids, pooling):
    encoder = Encoder(folder, pooling).eval()
    torch.testing.assert_close(encoder(ids), encoder(ids[:, :20]), rtol=1e-4, atol=1e-5)


def read_apart_and_together(encoder, ids, mask, monkeypatch):
    """Features and gradients of both ways, and how many tokens the first reads."""
    weights, tokens = torch.randn(len(ids), 1, generator=torch.Generator().manual_seed(1)), []

    def answers():
        features = encoder(ids, mask)
        return features, *torch.autograd.grad((features * weights).sum(), [*encoder.parameters()])

    hook = encoder.model.register_forward_hook(
        lambda _, __, given, ___: tokens.append(given["input_ids"].numel()), with_kwargs=True
    )
    apart = answers()
    hook.remove()
    monkeypatch.setattr("calmoe.backbones.encoder._may_split", lambda ids: False)
    return zip(apart, answers(), strict=True), tokens


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("kind", ["distilbert", "bert", "mobilebert"])
def test_texts_read_by_length_are_those_read_together(tmp_path, monkeypatch, kind, side):
    """In float64; wherever the padding is, where a text is empty, where a model looks at the next token."""
    encoder = Encoder(str(save_encoder(tmp_path, kind=kind)), "mean").eval().double()
    source = torch.Generator().manual_seed(0)
    with torch.no_grad():  # a trained model's vector of the padding need not be zero
        encoder.model.get_input_embeddings().weight[0].normal_(generator=source)
    ends = torch.randint(0, 26, (45, 1), generator=source)
    ends[7] = 0
    mask = torch.arange(30) < ends if side == "right" else torch.arange(30) >= 30 - ends
    ids = torch.randint(len(WORDS), (45, 30), generator=source) * mask
    pairs, tokens = read_apart_and_together(encoder, ids, mask, monkeypatch)
    assert (len(tokens) > 1) == (side == "right")
    assert sum(tokens) < 0.7 * ids.numel() or side == "left"
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_texts_of_one_length_are_read_together_and_cut_to_it(folder, monkeypatch):
    encoder, ids = Encoder(folder).eval().double(), torch.full((40, 30), PADDING)
    ids[:, :12] = torch.randint(len(WORDS), (40, 12), generator=torch.Generator().manual_seed(0))
    pairs, tokens = read_apart_and_together(encoder, ids, None, monkeypatch)
    assert tokens == [40 * 13]
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore:.*:torch.jit.TracerWarning", "ignore:.*torch.jit:DeprecationWarning")
def test_a_trace_is_of_any_texts(folder):
    """What reading by length found in the first texts must not become part of the graph."""
    source, encoder = torch.Generator().manual_seed(0), Encoder(folder).eval()
    first, second = (torch.randint(len(WORDS), (40, 30), generator=source) for _ in range(2))
    first[:20, 3:] = PADDING  # and the second texts are all long
    with torch.no_grad():
        traced = torch.jit.trace(encoder, first, check_trace=False)
        torch.testing.assert_close(traced(second), encoder(second), rtol=1e-4, atol=1e-5)


def test_the_mean_of_nothing_is_zero():
    hidden = torch.randn(2, 5, 3)
    mask = torch.tensor([[True] * 5, [False] * 5])
    assert torch.allclose(masked_mean(hidden, mask), torch.stack([hidden[0].mean(0), torch.zeros(3)]))


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_gradients_reach_every_parameter(folder, ids, pooling):
    """The trainer asks for all of them: a pooling layer that goes unused would stop it."""
    encoder = Encoder(folder, pooling).train()
    features = encoder(ids)
    gradients = torch.autograd.grad((features * torch.randn_like(features)).sum(), [*encoder.parameters()])
    assert all(gradient.isfinite().all() and gradient.any() for gradient in gradients)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_no_step_depends_on_the_data(folder, ids, pooling):
    """One graph without breaks: what a GPU compiles and captures."""
    encoder = Encoder(folder, pooling).eval()
    compiled = torch.compile(encoder, backend="eager", fullgraph=True, dynamic=False)
    torch.testing.assert_close(compiled(ids), encoder(ids))


def test_dropout_is_on_in_training_only(folder, ids):
    encoder = Encoder(folder)
    assert not torch.equal(encoder.train()(ids), encoder(ids))
    assert torch.equal(encoder.eval()(ids), encoder(ids))


def test_weights_are_those_of_the_file_in_float32(folder, tmp_path):
    encoder = Encoder(folder)
    stored = safetensors.torch.load_file(f"{folder}/model.safetensors")
    ours = encoder.model.state_dict()
    assert {name for name in stored if not name.startswith("pooler.")} == set(ours)
    assert all(
        torch.equal(stored[name], value) and value.dtype == torch.float32 for name, value in ours.items()
    )
    half = {name: value.bfloat16() for name, value in stored.items()}
    shutil.copy(f"{folder}/config.json", tmp_path)
    safetensors.torch.save_file(half, tmp_path / "model.safetensors", {"format": "pt"})
    assert all(value.dtype == torch.float32 for value in Encoder(tmp_path).state_dict().values())


def test_what_is_wrong_is_named(folder, ids, tmp_path):
    with pytest.raises(InputError, match="--set weights=DIR"):
        build_backbone("encoder", (128,))
    with pytest.raises(InputError, match="unknown pooling 'max'"):
        Encoder(folder, "max")
    with pytest.raises(InputError, match="at most 128 tokens, too few for rows of 200"):
        build_backbone("encoder", (200,), weights=folder)
    with pytest.raises(InputError, match="rows of token ids"):
        build_backbone("encoder", (3, 32, 32), weights=folder)


def test_a_tokenizer_with_more_tokens_than_the_model_has_vectors_is_refused(tmp_path):
    save_encoder(tmp_path)
    save_tokenizer(tmp_path, [*WORDS, "more", "words"])
    with pytest.raises(InputError, match="has 21 tokens, the model vectors for 19: save the model's own"):
        Encoder(tmp_path)
    save_tokenizer(tmp_path, WORDS[:-1])  # fewer are no harm: many models are padded
    assert Encoder(tmp_path).out_features == 16


def test_a_model_that_is_no_encoder_of_texts_is_refused(tmp_path):
    from transformers import T5Config, T5Model

    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2, "vocab_size": 19}
    T5Model(T5Config(**sizes)).save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"\(t5\) is no encoder of texts"):
        Encoder(tmp_path)


@pytest.mark.parametrize("damage", ["cut", "renamed"])
def test_damaged_weights_are_named_and_never_made_up(tmp_path, damage):
    save_encoder(tmp_path)
    path = tmp_path / "model.safetensors"
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    else:
        weights = safetensors.torch.load_file(path)
        weights["gone"] = weights.pop("transformer.layer.0.ffn.lin1.weight")
        safetensors.torch.save_file(weights, path, {"format": "pt"})
    said = (
        "cannot be read" if damage == "cut" else "1 are missing, such as transformer.layer.0.ffn.lin1.weight"
    )
    with pytest.raises(InputError, match=said) as refusal:
        Encoder(tmp_path)
    assert str(tmp_path) in str(refusal.value)

"""A tiny DistilBERT with random weights and a WordPiece tokenizer, and comments in the layout of WILDS."""

import csv
import random

import pytest

WORDS = [
    "you",
    "are",
    "a",
    "good",
    "bad",
    "kind",
    "awful",
    "man",
    "woman",
    "person",
    "##s",
    "the",
    "and",
    ".",
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
IDENTITIES = ["male", "female", "LGBTQ", "christian", "muslim", "other_religions", "black", "white"]
OTHERS = ["severe_toxicity", "obscene", "threat", "insult", "identity_attack", "sexual_explicit"]
COLUMNS = ["", "id", "comment_text", "split", "toxicity", *OTHERS, *IDENTITIES, "identity_any", "article_id"]


def save_tokenizer(folder, words=tuple(WORDS)):
    pytest.importorskip("transformers", reason="the text extra is not installed")
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *words])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)


def save_model(folder, kind="distilbert", dropout=0.1, positions=128):
    transformers = pytest.importorskip("transformers", reason="the text extra is not installed")
    import torch

    size = {"vocab_size": len(WORDS) + len(SPECIAL), "max_position_embeddings": positions}
    if kind == "distilbert":
        config = transformers.DistilBertConfig(
            **size, dim=16, n_layers=1, n_heads=2, hidden_dim=32, dropout=dropout, attention_dropout=dropout
        )
    elif kind == "mobilebert":
        config = transformers.MobileBertConfig(
            **size, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
            embedding_size=8, true_hidden_size=8, intra_bottleneck_size=8, num_feedforward_networks=1,
        )  # fmt: skip
    else:
        config = transformers.BertConfig(
            **size, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
        )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.AutoModel.from_config(config).save_pretrained(folder)


def save_encoder(folder, **options):
    save_tokenizer(folder)
    save_model(folder, **options)
    return folder


def comments(rows=400, seed=0):
    """Rows by column: toxic ones are mostly "bad" or "awful"; an eighth or so mention each identity."""
    generator = random.Random(seed)
    for number in range(rows):
        toxic = generator.random() < 0.4
        words = generator.choices(["you", "are", "a", "the", "person", "man", "woman", "and"], k=6)
        words[3] = generator.choice(["bad", "awful"] if toxic else ["good", "kind"])
        mentions = {name: round(generator.random(), 3) * (generator.random() < 0.25) for name in IDENTITIES}
        yield {
            "": number,
            "id": 1000 + number,
            "comment_text": f'"{" ".join(words)}",\nsaid\u2028one é',
            "split": ["train", "train", "train", "val", "test"][number % 5],
            "toxicity": round(generator.uniform(0.5, 1) if toxic else generator.uniform(0, 0.49), 3),
            **dict.fromkeys(OTHERS, 0.0),
            **mentions,
            "identity_any": float(any(score >= 0.5 for score in mentions.values())),
            "article_id": 7,
        }


def write_comments(folder, rows=400, columns=COLUMNS, change=lambda row: row):
    """`all_data_with_identities.csv` in `folder`, and its rows."""
    written = [change(row) for row in comments(rows)]
    with (folder / "all_data_with_identities.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(written)
    return written

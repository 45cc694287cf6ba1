"""A pretrained text encoder of the transformers library: token ids to one feature vector."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from calmoe.backbones.backbone import Backbone
from calmoe.errors import InputError, about, check_known
from calmoe.text_encoders import (
    PADDING,
    encoder_folder,
    has_tokenizer,
    load_tokenizer,
    reading,
    weights_files,
)
from calmoe.validation import check_finite

POOLINGS = ("cls", "mean")
LEAST_PART, PARTS = 8, 16  # of a batch on a CPU: rows of similar length, and how many such parts at most
WORTHWHILE = 0.8  # of the tokens of the whole batch: a batch is split where fewer are left


class Encoder(Backbone):
    """Token ids [N, L] -> features [N, out_features]. PADDING, or a mask, says where a text ends.

    `weights` is a folder or a hub name that AutoModel reads. "cls" takes the first token's vector,
    "mean" the mean over the text's tokens. Dropout is as in the model's own configuration.
    """

    def __init__(self, weights: str | Path, pooling: str = "cls", length: int | None = None) -> None:
        super().__init__()
        check_known("pooling", pooling, POOLINGS)
        if not str(weights):
            raise InputError("the encoder needs a model: give its folder or its hub name, --set weights=DIR")
        self.pooling = pooling
        folder = encoder_folder(str(weights))
        self.model = _load(folder)
        _check_vocabulary(self.model, folder)
        self.out_features: int = self.model.config.hidden_size
        longest = getattr(self.model.config, "max_position_embeddings", None)
        if length is not None and longest is not None and length > longest:
            raise InputError(f"{weights} reads at most {longest} tokens, too few for rows of {length}")

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        if torch.distributed.is_initialized() and not len(input_ids):
            # a rank without rows: transformers takes none, and every rank must run it
            return self.forward(input_ids.new_zeros(1, *input_ids.shape[1:]))[:0]
        text = input_ids != PADDING if attention_mask is None else attention_mask.bool()
        ids = input_ids.clamp(min=0).long()
        if not _may_split(ids):
            return self._features(ids, text, token_type_ids)
        parts = by_length(text)
        features = [self._features(*_rows(rows, end, ids, text, token_type_ids)) for rows, end in parts]
        return torch.cat(features)[torch.cat([rows for rows, _ in parts]).argsort()]

    def _features(self, ids: Tensor, text: Tensor, token_types: Tensor | None = None) -> Tensor:
        named = {"input_ids": ids, "attention_mask": text.long()}
        if token_types is not None:
            named["token_type_ids"] = token_types
        hidden = self.model(**named).last_hidden_state
        return hidden[:, 0] if self.pooling == "cls" else masked_mean(hidden, text)


def _may_split(ids: Tensor) -> bool:
    """Whether short texts may be read apart from long ones, without their padding.

    Not on a GPU, where a step is captured as it is, nor where a graph is traced or exported; and ranks that
    share one model must run it equally often.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or torch.distributed.is_initialized():
        return False
    return type(ids) is Tensor and ids.device.type == "cpu" and len(ids) > 0


def by_length(text: Tensor) -> list[tuple[Tensor, int]]:
    """Rows of similar length, and how many of their columns hold their texts and one column of padding.

    Some models look at the token that follows, hence that column. Rows stay together where it saves little to
    part them.

    >>> long_and_short = torch.tensor([[True] * 9, [True] + [False] * 8]).repeat(8, 1)
    >>> [(len(rows), columns) for rows, columns in by_length(long_and_short)]
    [(8, 2), (8, 9)]
    >>> [(len(rows), columns) for rows, columns in by_length(torch.ones(16, 9, dtype=torch.bool))]
    [(16, 9)]
    """
    columns = text.shape[1]
    ends = (text * torch.arange(1, columns + 1, device=text.device)).amax(1)
    ends = (ends + 1).clamp(max=columns)
    parts = ends.argsort(stable=True).split(max(LEAST_PART, len(text) // PARTS))
    apart = [(rows, int(ends[rows].max())) for rows in parts]
    longest = apart[-1][1]
    if sum(len(rows) * end for rows, end in apart) > WORTHWHILE * len(text) * longest:
        return [(torch.arange(len(text), device=text.device), longest)]
    return apart


def _rows(rows: Tensor, end: int, *columns: Tensor | None) -> list[Any]:
    return [column if column is None else column[rows, :end] for column in columns]


def masked_mean(hidden: Tensor, mask: Tensor) -> Tensor:
    """Mean over the positions [N, L] where the mask is true: [N, L, D] -> [N, D]; zero where it never is.

    >>> masked_mean(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[True, True, False]]))
    tensor([[2.]])
    """
    weights = mask / mask.sum(1, keepdim=True).clamp(min=1)
    return (hidden * weights.unsqueeze(2)).sum(1)


def _check_vocabulary(model: Any, folder: Path) -> None:
    """Refuse a model without a vector for every token of the folder's tokenizer, if it has one."""
    vectors = getattr(model.get_input_embeddings(), "num_embeddings", None)
    if vectors is None or model.config.is_encoder_decoder:
        raise InputError(
            f"the model in {folder} ({model.config.model_type}) is no encoder of texts: give one such as "
            "distilbert-base-uncased"
        )
    tokens = max(load_tokenizer(folder).get_vocab().values()) + 1 if has_tokenizer(folder) else 0
    if tokens > vectors:
        raise InputError(
            f"the tokenizer in {folder} has {tokens:,} tokens, the model vectors for {vectors:,}: save the "
            "model's own tokenizer there"
        )


def _load(folder: Path) -> Any:
    """The folder's model in float32, without the pooling layer that some have: it is for other tasks."""
    weights_files(folder)  # checks that they are there
    with reading(f"the model in {folder}") as library:
        model, loading = library.AutoModel.from_pretrained(
            folder,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            attn_implementation="sdpa",
            output_loading_info=True,
        )
    missing = sorted(name for name in loading["missing_keys"] if not name.startswith("pooler."))
    if missing:
        raise InputError(
            f"the weights in {folder} do not fit its config.json: {len(missing)} are missing, such as "
            f"{missing[0]}; save the model again"
        )
    if hasattr(model, "pooler"):
        model.pooler = None
    with about(folder):
        check_finite(model.state_dict())
    return model.to(torch.float32)

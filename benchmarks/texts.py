"""What it saves on a CPU to read texts by length: `python -m benchmarks.texts` (needs the text extra).

An encoder of MiniLM's size with random weights, on a batch of 32 texts in rows of 128 tokens. "Varied" texts
have lengths as short messages do, 25 on average with a long tail; "equal" ones have 40 tokens. The rival is
the same encoder that reads whole rows; both take turns.
"""

import statistics
import tempfile
import time
from collections.abc import Callable

import torch
import transformers
from torch import Tensor

from calmoe.backbones import encoder as module
from calmoe.backbones.encoder import Encoder
from calmoe.text_encoders import PADDING

ROUNDS, BATCH, COLUMNS, WORDS = 5, 32, 128, 30_000


def texts(equal: bool) -> Tensor:
    source = torch.Generator().manual_seed(0)
    lengths = torch.full((BATCH, 1), 40)
    if not equal:
        lengths = torch.empty(BATCH, 1).exponential_(1 / 25, generator=source).long().clamp(3, COLUMNS)
    ids = torch.randint(1, WORDS, (BATCH, COLUMNS), generator=source)
    return ids.masked_fill(torch.arange(COLUMNS) >= lengths, PADDING)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    config = transformers.BertConfig(
        vocab_size=WORDS, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    with tempfile.TemporaryDirectory() as folder:
        transformers.BertModel(config).save_pretrained(folder)
        encoder = Encoder(folder, "mean")
    by_length, whole = module._may_split, lambda ids: False
    print("| a batch of 32 texts | by length, s | whole, s | times as fast |\n| --- | ---: | ---: | ---: |")
    for name, ids in (("varied", texts(equal=False)), ("equal", texts(equal=True))):
        for what in ("train", "predict"):

            def work(ids: Tensor = ids, trains: bool = what == "train") -> None:
                encoder.train(trains)
                with torch.set_grad_enabled(trains):
                    features = encoder(ids)
                if trains:
                    features.sum().backward()

            times: dict[str, list[float]] = {"by length": [], "whole": []}
            for _ in range(ROUNDS):
                for way, splits in zip(times, (by_length, whole), strict=True):
                    module._may_split = splits
                    times[way].append(seconds(work))
            one, other = (statistics.median(each) for each in times.values())
            print(f"| {name}, {what} | {one:.3f} | {other:.3f} | {other / one:.1f} |")
    module._may_split = by_length


if __name__ == "__main__":
    main()

"""A command on several ranks, as torchrun starts it: the first carries it out, the others help it train."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import calmoe
from calmoe.errors import about
from calmoe.launch import launch

CONTINUES = "the same command, on as many ranks as you like, goes on after the last checkpoint"


def several_ranks(advice: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command that trains. `advice` says what to do where a rank is lost.

    The followers begin when the first rank is sure that there is something to train: whatever is wrong before
    that, it alone says.
    """

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(*arguments: Any, **options: Any) -> None:
            launched = launch()
            if launched is None:
                command(*arguments, **options)
                return
            import torch

            from calmoe.training.joining import joined

            with joined(launched, advice) as ranks:
                ranks.meet_alike({"versions": f"{calmoe.__version__} {torch.__version__}"})
                if ranks.leads:
                    command(*arguments, **options)
                elif ranks.heard()["do"] == "begin":
                    with about(f"rank {ranks.rank}"):
                        command(*arguments, **options)

        return run

    return decorated

"""Each objective's forward and backward against plain cross-entropy, at N = 4096 on the same mixture output.

"head" times what a training loop does: head forward, objective, backward to the features and all weights.
"bare" times the objective alone on a ready-made output, backward to its log-probabilities only: a few
microseconds of launch overhead weigh heavily there.
"""

import torch
from torch import Tensor

from benchmarks.timing import interleaved
from calmoe import MixtureHead, MixtureOutput
from calmoe.objectives import ERM, CVaR, EntropicRisk, RobustFiltered, RobustMoE, brier

ROWS, FEATURES, CLASSES = 4096, 256, 10


def plain(output: MixtureOutput, labels: Tensor) -> Tensor:
    return torch.nn.functional.nll_loss(output.log_probs, labels)


def main() -> None:
    torch.manual_seed(0)
    head = MixtureHead(FEATURES, CLASSES)
    features = torch.randn(ROWS, FEATURES, requires_grad=True)
    labels = torch.randint(CLASSES, (ROWS,))
    ready = MixtureOutput(*(part.requires_grad_() for part in head(features).detach()))
    objectives = {
        "torch nll_loss": plain,
        "ERM": ERM(),
        "RobustMoE": RobustMoE(),
        "RobustMoE, Brier": RobustMoE(loss=brier),
        "RobustFiltered": RobustFiltered(),
        "EntropicRisk": EntropicRisk(),
        "CVaR": CVaR(),
    }

    def through_head(objective):
        def step():
            objective(head(features), labels).backward()

        return step

    def bare(objective):
        def step():
            objective(ready, labels).backward()

        return step

    in_head = interleaved({name: through_head(objective) for name, objective in objectives.items()})
    alone = interleaved({name: bare(objective) for name, objective in objectives.items()})
    print(f"objectives, forward + backward, N = {ROWS}, C = {CLASSES}, K = 4 (ratio to torch nll_loss)")
    for name in objectives:
        ratio, own = in_head[name] / in_head["torch nll_loss"], alone[name] / alone["torch nll_loss"]
        print(
            f"  {name:<18} head {1e3 * in_head[name]:7.3f} ms  {ratio:5.2f}x"
            f"   bare {1e3 * alone[name]:7.3f} ms  {own:5.2f}x"
        )


if __name__ == "__main__":
    main()

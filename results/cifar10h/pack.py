"""Pack one seed's predictions small enough for git: half precision, mixtures recomputed from their experts.

    python results/cifar10h/pack.py RUN 42

Reads a run's `nodes/` and writes `predictions/METHOD-SPLIT.npz`, which `Predictions.load` reads. ECE and NLL
move by less than 1e-5, the hard subset's ECE after a temperature by up to 3e-3; the tables here were made
from the full-precision predictions.
"""

import json
import sys
from pathlib import Path

import numpy as np

from calmoe.predictions import Predictions

run, seed = Path(sys.argv[1]), int(sys.argv[2])
to = Path(__file__).parent / "predictions"
to.mkdir(exist_ok=True)
for split in ("validation", "test"):
    for path in sorted(run.glob(f"nodes/*/{split}.safetensors")):
        predictions = Predictions.load(path)
        if predictions.metadata["seed"] == seed:
            columns = {k: v for k, v in predictions.groups.items() if not k.startswith("human_")}
            np.savez_compressed(
                to / f"{predictions.metadata['method']}-{split}.npz",
                log_routing=predictions.output.log_routing.numpy().astype(np.float16),
                expert_log_probs=predictions.output.expert_log_probs.numpy().astype(np.float16),
                labels=predictions.known_labels.numpy().astype(np.int8),
                **{k: v.astype(np.float32) if v.dtype == np.float64 else v for k, v in columns.items()},
            )
print(json.dumps({path.name: path.stat().st_size for path in sorted(to.glob("*.npz"))}, indent=1))

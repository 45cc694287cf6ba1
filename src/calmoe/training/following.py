"""What a rank does that follows: all that the leader's trainer is asked to do, for its own share of rows."""

from contextlib import suppress

from calmoe.training.checkpoints import TrainingState
from calmoe.training.settings import Stage, TrainingSettings
from calmoe.training.trainer import RaisedTogether, Stopped, Trainer


def follow(trainer: Trainer) -> None:
    """Carry out the leader's orders until it has no more. States come from it: this rank needs none."""
    while (order := trainer.ranks.heard())["do"] != "end":
        state = TrainingState(epoch=order["epoch"], tensors={})
        match order["do"]:
            case "train":
                stage, settings = Stage(**order["stage"]), TrainingSettings(**order["settings"])
                with suppress(RaisedTogether, Stopped):  # the leader says it
                    trainer.train(stage, order["seed"], state, settings=settings)
            case "averaged":
                trainer.averaged(state, order["head"], order["seed"])
            case "predict":
                trainer.predict(state, order["head"], order["views"])

"""What a rank does that follows: all that the leader's trainer is asked to do, for its own share of rows."""

from contextlib import suppress

from calmoe.training.checkpoints import TrainingState
from calmoe.training.settings import ModelSettings, Stage, TrainingSettings
from calmoe.training.trainer import RaisedTogether, Stopped, Trainer


def follow(trainer: Trainer) -> None:
    """Carry out the leader's orders until it has no more. States come from it: this rank needs none."""
    while (order := trainer.ranks.heard())["do"] != "end":
        state = TrainingState(epoch=order["epoch"], tensors={})
        model = ModelSettings(**{**order["model"], "hidden": tuple(order["model"]["hidden"])})
        asked = trainer.for_settings(model, TrainingSettings(**order["settings"]))
        match order["do"]:
            case "train":
                with suppress(RaisedTogether, Stopped):  # the leader says it
                    asked.train(Stage(**order["stage"]), order["seed"], state)
            case "averaged":
                asked.averaged(state, order["head"], order["seed"])
            case "predict":
                asked.predict(state, order["head"], order["views"])

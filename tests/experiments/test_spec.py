import pytest

from calmoe.errors import InputError
from calmoe.experiments.spec import (
    MOST_SEEDS,
    from_table,
    load_preset,
    parse_methods,
    parse_seeds,
    with_settings,
)
from calmoe.methods import METHODS


def test_presets_are_the_papers():
    digits, cifar = load_preset("digits"), load_preset("cifar10h")
    paper = tuple(m.name for m in METHODS.values() if m.family in ("baseline", "robust"))
    assert digits.methods == ("recommended", *paper)
    assert digits.seeds == (42, 43, 44)
    assert cifar.methods == (*paper, "entropic", "robust_brier")
    assert cifar.seeds == (42, 43, 44, 45, 46)
    assert cifar.model.backbone == "resnet18"
    assert cifar.model.stages == 3
    assert (cifar.training.epochs, cifar.training.warmup, cifar.training.batch) == (50, 20, 128)
    assert (cifar.training.learning_rate, cifar.training.weight_decay) == (1e-3, 1e-4)
    assert digits.protocol == cifar.protocol == "corrected"


@pytest.mark.parametrize(
    ("settings", "place", "expected"),
    [
        (["epochs=30", "warmup=0"], ("training", "warmup"), 0),
        (["epochs=10"], ("training", "warmup"), 4),
        (["training.eta=3"], ("training", "eta"), 3.0),
        (["learning_rate = 1e-2"], ("training", "learning_rate"), 0.01),
        (["hidden=[64, 32]"], ("model", "hidden"), (64, 32)),
        (["model.experts=2"], ("model", "experts"), 2),
        (["routing=top2"], ("model", "routing"), "top2"),
        (['precision="float32"'], ("training", "precision"), "float32"),
    ],
)
def test_settings_are_toml_values_under_a_short_or_a_dotted_name(settings, place, expected):
    section, name = place
    value = getattr(getattr(with_settings(load_preset("digits"), settings), section), name)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("eta=two", "training.eta must be a number, not 'two'"),
        ('eta="2"', "training.eta must be a number, not '2'"),
        ("eta=nan", "training.eta must be at least 0, not nan"),
        ("eta=inf", "training.eta must be at least 0, not inf"),
        ("eta=true", "training.eta must be a number, not True"),
        ("epochs=-1", "training.epochs must be between 1 and 99999, not -1"),
        ("epochs=2.5", "training.epochs must be a whole number, not 2.5"),
        ("warmup=60", "warmup=60 must not exceed epochs=50"),
        ("batch=0", "training.batch must be between 1 and 1000000, not 0"),
        ("epoch=10", "unknown setting 'epoch': did you mean 'epochs'?"),
        ("model.epochs=10", "unknown setting 'model.epochs': did you mean"),
        ("dataset=cifar10h", "unknown setting 'dataset': did you mean"),
        ("precision=bf16", "unknown precision 'bf16': did you mean 'bfloat16'?"),
        ("backbone=resnet19", "unknown backbone 'resnet19': did you mean 'resnet18'?"),
        ("routing=top9", 'routing "top9" is not possible with num_experts=4'),
        ("hidden=64", "model.hidden must be a list of whole numbers, not 64"),
        ("hidden=[0]", "model.hidden must be between 1 and 100000, not 0"),
        ("keep_weights=1", "keep_weights must be true or false, not 1"),
        ("methods=[]", "methods and seeds must name at least one each"),
        ("seeds=[1, 1]", "seeds must all differ"),
        ("epochs", "--set 'epochs' must be key=value"),
        ("=3", "--set '=3' must be key=value"),
        ("eta=1\nbatch=3", "training.eta must be a number"),
    ],
)
def test_a_bad_setting_is_named_in_one_line(setting, said):
    with pytest.raises(InputError) as error:
        with_settings(load_preset("digits"), [setting])
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_table_must_be_whole():
    with pytest.raises(InputError, match="the setting 'methods' is missing"):
        from_table({"dataset": "digits", "seeds": [1]})
    with pytest.raises(InputError, match="model must be a table"):
        from_table({"dataset": "digits", "seeds": [1], "methods": ["single"], "model": 3, "training": {}})
    with pytest.raises(InputError, match="unknown dataset 'digit': did you mean 'digits'"):
        load_preset("digit")


def test_seeds_and_methods():
    assert parse_seeds("42-46,50, 43") == (42, 43, 44, 45, 46, 50)
    assert parse_methods("robust,vanilla,robust") == ("robust", "vanilla")
    for bad in ("", "42-", "a", "46-42", "1,,2", "-3", f"0-{MOST_SEEDS}", "٤٢"):
        with pytest.raises(InputError, match="seeds"):
            parse_seeds(bad)
    with pytest.raises(InputError, match="unknown method 'vanila': did you mean 'vanilla'"):
        parse_methods("vanila")

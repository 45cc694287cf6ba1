import pytest

from calmoe.errors import InputError
from calmoe.methods import METHODS
from calmoe.report import published
from calmoe.report.columns import COLUMNS, columns_in

TARGETS = ["pacs_photo", "pacs_art", "pacs_cartoon", "pacs_sketch"]
PAPER_METHODS = [method.name for method in METHODS.values() if method.family in ("baseline", "robust")]


@pytest.mark.parametrize(
    ("dataset", "method", "column", "cell"),
    [  # read off the paper's pages by eye
        ("cifar10h", "single", "accuracy", [0.922, 0.001]),
        ("cifar10h", "mocae", "ece_ts", [0.042, 0.002]),
        ("cifar10h", "robust", "ece", [0.090, 0.019]),
        ("cifar10h", "robust_filtered", "ece_ts", [0.007, 0.001]),
        ("cifar10h", "fgr_robust", "hard_ece_ts", [0.108, 0.013]),
        ("pacs_photo", "single", "accuracy", [0.943, 0.004]),
        ("pacs_art", "fgr_robust", "ece", [0.061, 0.027]),
        ("pacs_cartoon", "robust", "ece_ts", [0.088, 0.021]),
        ("pacs_sketch", "robust", "ece", [0.033, 0.017]),
        ("pacs_sketch", "fgr_robust", "ece_ts", [0.105, 0.026]),
        ("civilcomments", "robust", "accuracy", [0.914, 0.000]),
        ("civilcomments", "fgr", "hard_ece", [0.065, 0.006]),
        ("civilcomments", "fgr_robust", "hard_ece_ts", [0.057, 0.005]),
    ],
)
def test_spot_values(dataset, method, column, cell):
    assert published(dataset)["cells"][method][column] == cell


@pytest.mark.parametrize("dataset", ["cifar10h", *TARGETS, "civilcomments"])
def test_tables_are_complete(dataset):
    table = published(dataset)
    columns = ["accuracy", "ece", "ece_ts"] if dataset in TARGETS else list(columns_in("paper"))
    assert list(table["cells"]) == PAPER_METHODS
    assert all(list(cells) == columns for cells in table["cells"].values())
    assert table["table"] == f"tab:{dataset.split('_')[0]}"
    assert table["caption"]


@pytest.mark.parametrize(
    ("dataset", "bold"),
    [  # the method printed in bold, column by column; PACS prints ties both
        ("cifar10h", ["single", "single", "robust_filtered", "robust_filtered", "fgr_robust", "fgr_robust"]),
        ("pacs_photo", ["single", "robust_filtered fgr_robust", "robust_filtered"]),
        ("pacs_art", ["single", "fgr_robust", "fgr_robust"]),
        ("pacs_cartoon", ["vanilla mocae", "robust", "robust"]),
        ("pacs_sketch", ["robust_filtered", "robust", "robust"]),
        ("civilcomments", ["robust_filtered", "robust_filtered", "robust", "robust", "robust", "robust"]),
    ],
)
def test_the_best_cells_are_those_the_paper_prints_in_bold(dataset, bold):
    cells = published(dataset)["cells"]
    for column, methods in zip(cells["single"], bold, strict=True):
        best = COLUMNS[column].best(row[column][0] for row in cells.values())
        assert " ".join(method for method, row in cells.items() if row[column][0] == best) == methods


def test_eta_gamma():
    table = published("eta_gamma")
    assert [row["eta"] for row in table["rows"]] == [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0]
    assert table["rows"][3] == {
        "eta": 2.0,
        "perplexity": 93.2,
        "effective_fraction": 0.728,
        "density_ratio_bound": 1.4,
        "top": 92,
    }
    for row in table["rows"]:
        assert row["effective_fraction"] == pytest.approx(row["perplexity"] / table["batch_size"], abs=1e-3)
        assert row["density_ratio_bound"] == pytest.approx(1 / row["effective_fraction"], abs=0.051)


def test_an_unknown_table_is_named_with_the_known_ones():
    with pytest.raises(InputError, match="no table for 'digits': choose one of cifar10h, pacs_photo"):
        published("digits")

"""MixtureOfModels: any classifiers as experts, and a router that learns whom to trust where."""

from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils import _safe_indexing

from calmoe.arrays import as_number
from calmoe.errors import InputError, shown
from calmoe.methods import OBJECTIVES
from calmoe.mixture import MixtureOutput
from calmoe.models.choice import Trial, choose, fit_chosen, try_candidates
from calmoe.models.classifier import Rows, TableClassifier, differing, seed_of
from calmoe.models.columns import Columns
from calmoe.models.experts import FEWEST_ROWS, Material, answers, cross_fit, named_experts, refit
from calmoe.models.folds import make_folds, shift_groups
from calmoe.models.objective_choice import named_objective
from calmoe.models.preparation import Preparation
from calmoe.models.router import Lessons, Router
from calmoe.threads import threads

SHIFT_OBJECTIVE = "entropic"  # where a shift is expected and no robust objective was named
SHIFT_ETAS = (0.0, 0.5, 1.0, 2.0)


class MixtureOfModels(TableClassifier):
    """A calibrated mixture of ordinary classifiers, for tables.

    Each expert answers for rows that it was not fitted on (`cv` folds). From these answers a router learns
    one temperature an expert, the experts' weights, and one temperature on the whole. The weights are those
    of one expert, all the same, constant, or of a gate that looks at the row: whichever is the simplest
    within one standard error of the lowest cross-validated log loss. So the mixture is as good as its best
    expert, up to noise. Then the experts are fitted on all rows.

    experts: classifiers, or pairs of a name and a classifier; by default logistic regression, histogram
        gradient boosting and extra trees. prepare: whether they see the prepared table, in numbers without
        gaps (`calmoe.models.Preparation`), or X as it is.
    objective, eta: what the router minimises: "erm", "entropic", "tilted", "filtered" or "cvar".
    expect_shift: a column, by name or number, whose values will be others in use. Then values of this column
        are left out together, experts and router learn from answers about values that they have not seen, and
        η is the one of `etas` with the lowest log loss there.
    cv: the number of folds, a splitter of scikit-learn, or splits. n_jobs: as in scikit-learn.

    After `fit`: `experts_` (names and fitted classifiers), `router_`, `eta_`, `choice_` (the kind of router)
    and `trials_` (every candidate and its log loss on rows left out).

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> y = np.where(X[:, 0] + rng.normal(size=200) > 0, "yes", "no")
    >>> model = MixtureOfModels(cv=3, random_state=0).fit(X, y)
    >>> model.classes_, model.predict_proba(X[:5]).shape, model.predictions(X, y).num_experts
    (array(['no', 'yes'], dtype='<U3'), (5, 2), 3)
    """

    def __init__(
        self,
        experts: Any = None,
        objective: str = "erm",
        *,
        eta: float = 1.0,
        expect_shift: str | int | None = None,
        etas: tuple[float, ...] = SHIFT_ETAS,
        cv: Any = 5,
        prepare: bool = True,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.experts = experts
        self.objective = objective
        self.eta = eta
        self.expect_shift = expect_shift
        self.etas = etas
        self.cv = cv
        self.prepare = prepare
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Learn from a table or an array X and labels y.

        groups: one value a row; rows of a group are left out together (a patient, a shop).
        """
        named_objective(self.objective, self.eta)
        rows = self._begin(X, y, sample_weight)
        seed = seed_of(self.random_state)
        few = differing(rows.columns, FEWEST_ROWS)
        experts = named_experts(self.experts, few)
        folds = self._folds(rows, X, y, groups, seed)
        self.preparation_ = Preparation().fit(rows.columns, rows.weights)
        features = self.preparation_.transform(rows.columns).astype(np.float64)
        given = features if self.prepare else _safe_indexing(X, rows.kept)
        material = Material(given, rows.labels, rows.weights, self.prepare)
        seeds = [seed + 1 + k for k in range(len(experts))]
        logs = cross_fit(experts, material, folds, seeds, self.n_jobs)
        lessons = Lessons(
            torch.from_numpy(features),
            torch.from_numpy(logs),
            torch.from_numpy(rows.labels.astype(np.int64)),
            torch.from_numpy(rows.weights / rows.weights.mean()),
        )
        together = folds if groups is not None or self.expect_shift is not None else None
        with threads(1):
            self._learn_router(lessons, folds, together, few >= FEWEST_ROWS, seed)
        self.prior_ = material.prior
        self.experts_ = refit(experts, material, seeds, self.n_jobs)
        return self

    def save(self, folder: str | Path) -> None:
        """Write the model into a new or empty folder: JSON, safetensors, and skops for the experts."""
        from calmoe.models.folders import save_mixture_of_models

        save_mixture_of_models(self, folder)

    @classmethod
    def load(cls, folder: str | Path, trusted: tuple[str, ...] = ()) -> "MixtureOfModels":
        """Read what `save` wrote. trusted: further types, by full name, that experts may consist of."""
        from calmoe.models.folders import load_mixture_of_models

        return load_mixture_of_models(folder, trusted)

    def _answer(self, columns: Columns, given: Any) -> MixtureOutput:
        features = self.preparation_.transform(columns).astype(np.float64)
        inputs = features if self.prepare else given
        logs = [answers(name, model, inputs, self.prior_) for name, model in self.experts_]
        with torch.no_grad(), threads(1):
            return self.router_(torch.from_numpy(features), torch.from_numpy(np.stack(logs, axis=1)))

    def _folds(self, rows: Rows, X: Any, y: Any, groups: Any, seed: int) -> np.ndarray:
        if self.expect_shift is not None:
            if groups is not None:
                raise InputError("give groups or expect_shift, not both: each says what is left out together")
            name = self._column(rows.columns)
            held_together = shift_groups(name, rows.columns[name])
        elif groups is not None:
            values = np.asarray(groups)
            if values.shape != (len(np.asarray(y)),):
                raise InputError(f"groups must be one value a row, not {list(values.shape)}")
            held_together = np.unique(values[rows.kept], return_inverse=True)[1]
        else:
            held_together = None
        return make_folds(self.cv, rows.labels, held_together, rows.kept, X, y, seed)

    def _column(self, columns: Columns) -> str:
        """The name of the column that will shift."""
        names, wanted = list(columns), self.expect_shift
        if isinstance(wanted, int | np.integer) and not isinstance(wanted, bool) and 0 <= wanted < len(names):
            return names[wanted]
        if wanted in names:
            return str(wanted)
        listed = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
        raise InputError(f"expect_shift: there is no column {shown(wanted)}; the columns are {listed}")

    def _learn_router(
        self, lessons: Lessons, folds: np.ndarray, together: np.ndarray | None, gate: bool, seed: int
    ) -> None:
        """Try every candidate, for every η where a shift is expected, and learn the one chosen."""
        objective = self.objective
        etas: tuple[float, ...] = (float(self.eta),)
        if self.expect_shift is not None:
            objective = objective if OBJECTIVES[objective].robust else SHIFT_OBJECTIVE
            etas = tuple(as_number("etas", eta, least=0) for eta in self.etas)
            if not etas:
                raise InputError("etas is empty: give at least one number, 0 for the plain mean")
        weights = lessons.weights.numpy()
        self.trials_: list[Trial] = []
        chosen: list[Trial] = []
        for eta in etas:
            trials = try_candidates(lessons, folds, named_objective(objective, eta), eta, gate, seed)
            self.trials_ += trials
            chosen.append(choose(trials, weights, together))
        best = min(chosen, key=lambda trial: trial.log_loss)
        self.eta_, self.choice_ = best.eta, best.kind
        self.router_: Router = fit_chosen(best, lessons, named_objective(objective, best.eta), seed)
        self.router_.requires_grad_(False)

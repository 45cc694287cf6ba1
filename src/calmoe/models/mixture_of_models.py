"""MixtureOfModels: any classifiers as experts, and a router that learns whom to trust where."""

from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils import _safe_indexing

from calmoe.arrays import as_number
from calmoe.errors import InputError, shown, some
from calmoe.methods import OBJECTIVES
from calmoe.mixture import MixtureOutput
from calmoe.models.choice import Trial, choose, fit_chosen, try_candidates
from calmoe.models.classifier import Rows, TableClassifier, differing, held_together_by, seed_of
from calmoe.models.columns import Columns
from calmoe.models.experts import (
    GATE_ROWS,
    Material,
    Named,
    answers,
    cross_fit,
    expert_seeds,
    named_experts,
    refit,
    rows_that_teach,
)
from calmoe.models.folds import make_folds, shift_groups, value_folds
from calmoe.models.objective_choice import named_objective
from calmoe.models.preparation import Preparation
from calmoe.models.router import Lessons, Router
from calmoe.models.shift import choose_eta
from calmoe.objectives import Objective
from calmoe.threads import threads

SHIFT_OBJECTIVE = "entropic"  # where a shift is expected and no robust objective was named
SHIFT_ETAS = (0.0, 0.25, 0.5, 1.0, 2.0)
SHIFT_FOLDS = 5  # of values that are left out together


class MixtureOfModels(TableClassifier):
    """A calibrated mixture of ordinary classifiers, for tables.

    Each expert answers for rows that it was not fitted on. From these answers a router learns one temperature
    an expert, the experts' weights, and one temperature on the whole. The weights are those of one expert,
    all the same, constant, or of a gate that looks at the row: whichever is the simplest within one standard
    error of the lowest cross-validated log loss. So the mixture is as good as its best expert, up to noise.
    Then the experts are fitted on all rows. Gates are tried from 500 different rows on.

    Args:
        experts: Classifiers, or pairs of a name and a classifier; by default logistic regression, histogram
            gradient boosting and extra trees.
        objective: What the router minimises: "erm", "entropic", "tilted", "filtered" or "cvar".
        eta: How hard the objective leans on large losses; "erm" and "cvar" do not read it.
        expect_shift: A column, by name or number, whose values will be others in use. Then η is chosen from
            `etas` by leaving out values of this column, and the objective, if it is "erm", is "entropic"
            where η > 0. The smallest η within one standard error of the best is taken: 0 is the plain mean.
        etas: The η to choose from.
        cv: The number of folds, a splitter of scikit-learn, or splits.
        prepare: Whether experts see the prepared table, in numbers without gaps
            (`calmoe.models.Preparation`), or X as it is.
        n_jobs: As in scikit-learn.
        random_state: A seed, as in scikit-learn.

    Attributes:
        classes_: The classes, sorted. [C]
        experts_: Names and fitted classifiers.
        router_: The fitted router.
        eta_: The η in use.
        choice_: The kind of router.
        trials_: Every candidate and its log loss on rows left out.
        shift_log_loss_: The log loss of each η tried.
        preparation_: How the table becomes numbers.
        n_features_in_: The number of columns.

    Example:
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

        Args:
            X: A table by columns, or an array. [N, columns]
            y: The classes. [N]
            sample_weight: Weights ≥ 0. [N]
            groups: One value a row [N]; rows of a group are left out together (a patient, a shop).
        """
        base = named_objective(self.objective, 0.0 if self.expect_shift is not None else self.eta)
        rows = self._begin(X, y, sample_weight)
        seed = seed_of(self.random_state)
        differ = differing(rows.columns, GATE_ROWS)
        experts = named_experts(self.experts, differ)
        seeds = expert_seeds(seed, len(experts))
        held_together = held_together_by(groups, y, rows)
        folds = make_folds(self.cv, rows.labels, held_together, rows.kept, X, y, seed)
        self.preparation_ = Preparation().fit(rows.columns, rows.weights)
        features = self.preparation_.transform(rows.columns).astype(np.float64)
        given = features if self.prepare else _safe_indexing(X, rows.kept)
        material = Material(given, rows.labels, rows.weights, self.prepare)
        lessons = Lessons(
            torch.from_numpy(features),
            torch.from_numpy(cross_fit(experts, material, folds, seeds, self.n_jobs)),
            torch.from_numpy(rows.labels.astype(np.int64)),
            torch.from_numpy(rows.weights / rows.weights.mean()),
        )
        with threads(1):
            self.trials_ = try_candidates(lessons, folds, base, differ >= GATE_ROWS, seed)
            clusters = None if held_together is None else folds
            chosen = choose(self.trials_, lessons.weights.numpy(), clusters)
            self.choice_, self.eta_ = chosen.kind, float(self.eta)
            if self.expect_shift is not None:
                base = self._expect_shift(
                    chosen, lessons, rows, experts, material, seeds, seed, held_together
                )
            self.router_: Router = fit_chosen(chosen, lessons, base, seed).requires_grad_(False)
        self.prior_ = material.prior
        self.experts_ = refit(experts, material, seeds, self.n_jobs)
        return self

    def save(self, folder: str | Path) -> None:
        """Write the model into a new or empty `folder`: JSON, safetensors, and skops for the experts."""
        from calmoe.models.folders import save_mixture_of_models

        save_mixture_of_models(self, folder)

    @classmethod
    def load(cls, folder: str | Path, trusted: tuple[str, ...] = ()) -> "MixtureOfModels":
        """Read what `save` wrote into `folder`; `trusted` are further types, by full name, of experts."""
        from calmoe.models.folders import load_mixture_of_models, refuse_calibrator

        refuse_calibrator(folder)
        return load_mixture_of_models(folder, trusted)

    @property
    def _num_experts(self) -> int:
        return len(self.experts_)

    def _answer(self, columns: Columns, given: Any) -> MixtureOutput:
        features = self.preparation_.transform(columns).astype(np.float64)
        inputs = features if self.prepare else given
        logs = [answers(name, model, inputs, self.prior_) for name, model in self.experts_]
        with torch.no_grad(), threads(1):
            return self.router_(torch.from_numpy(features), torch.from_numpy(np.stack(logs, axis=1)))

    def _expect_shift(
        self,
        chosen: Trial,
        lessons: Lessons,
        rows: Rows,
        experts: list[Named],
        material: Material,
        seeds: list[int],
        seed: int,
        together: np.ndarray | None,
    ) -> Objective:
        """Choose η by leaving out values, and return the objective with it."""
        etas = [as_number("etas", eta, least=0) for eta in self.etas]
        if not etas:
            raise InputError("etas is empty: give at least one number, 0 for the plain mean")
        name = self._column(rows.columns)
        folds = value_folds(shift_groups(name, rows.columns[name]), SHIFT_FOLDS)
        alone, with_groups = (rows_that_teach(folds, each) for each in (None, together))
        if any(2 * apart.sum() < rows.sum() for rows, apart in zip(alone, with_groups, strict=True)):
            raise InputError(
                f"expect_shift: most groups have several values of {shown(name)}, so no value can be left "
                "out with its groups: give groups or expect_shift, not both"
            )
        unseen = cross_fit(experts, material, folds, seeds, self.n_jobs, together)
        objective = self.objective if OBJECTIVES[self.objective].robust else SHIFT_OBJECTIVE
        self.eta_, self.shift_log_loss_ = choose_eta(chosen, lessons, unseen, folds, objective, etas, seed)
        return named_objective(objective, self.eta_)

    def _column(self, columns: Columns) -> str:
        """The name of the column that will shift."""
        names, wanted = list(columns), self.expect_shift
        if isinstance(wanted, int | np.integer) and not isinstance(wanted, bool) and 0 <= wanted < len(names):
            return names[wanted]
        if wanted in names:
            return str(wanted)
        known = some(names, 12)
        raise InputError(f"expect_shift: there is no column {shown(wanted)}; the columns are {known}")

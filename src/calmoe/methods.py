"""Method cards: all that anybody needs to know about a method, one row each.

A method is data: a head, an objective after the warm-up, a rule for the gradient, a step after training, and
how the method looks in tables and figures. A user's own method is `register(Method(...))`; an objective of
one's own is `OBJECTIVES.register(name, Recipe(...))`, with the settings that it reads; a loss is
`LOSSES.register(name, function)`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from calmoe.errors import InputError, refusal
from calmoe.recipes import LOSSES, OBJECTIVES, Recipe, Setting
from calmoe.registry import Registry
from calmoe.views import ALL_VIEWS

__all__ = [
    "LOSSES",
    "METHODS",
    "OBJECTIVES",
    "Method",
    "Recipe",
    "Setting",
    "card",
    "families",
    "in_order",
    "register",
    "source",
]

FAMILIES = ("recommended", "baseline", "robust", "beyond", "sharp", "own")  # the order of tables
HEADS = ("mixture", "single")
GRADIENTS: dict[str, tuple[str, ...]] = {  # and the settings that they read
    "plain": (),
    "rectified": ("filter_fraction", "filter_variant"),
    "sharp": ("rho", "sharp_every"),
}
POST_HOC = (None, "per_expert_temperature")
MARKERS = ".ov^<>12348spP*hH+xXDd|_"
LONGEST_TITLE = 60
SPARE = (("#332288", "8"), ("#aa4466", "x"), ("#117733", "+"), ("#6e5a2e", "1"))  # for methods without a look


@dataclass(frozen=True, kw_only=True)
class Method:
    """One method: how it trains, what follows training, and how it is shown.

    Args:
        name: What users type, such as "vanilla".
        title: What tables and figures call it; the name where it is empty.
        family: Where it stands in tables, one of `FAMILIES`.
        colour: Of its dots and lines, such as "#0b5fa5"; a spare one where it is empty.
        marker: Of its dots, as matplotlib names them.
        head: "mixture" or "single".
        objective: What it trains on after the warm-up: a name in `OBJECTIVES`.
        loss: One loss an example: a name in `LOSSES`.
        gradient: "plain", "rectified" (FGR) or "sharp" (SAM).
        warmup: The gradient of the warm-up with ERM, "plain" or "sharp"; where it is empty, "sharp" if
            `gradient` is.
        post_hoc: What follows training: None or "per_expert_temperature".
        weights_of: The method whose trained model this one uses.
        fixed: Training settings that no run changes, by name.
        on_texts: Those of them that are others where the backbone is a text encoder.
        pools_views: Whether its predictions are those over all views, not of the image alone.

    Example:
        >>> Method(name="mine", objective="tilted").settings
        ('eta',)
    """

    name: str
    title: str = ""
    family: str = "own"
    colour: str = ""
    marker: str = ""
    head: str = "mixture"
    objective: str = "erm"
    loss: str = "cross_entropy"
    gradient: str = "plain"
    warmup: str = ""
    post_hoc: str | None = None
    weights_of: str | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)
    on_texts: Mapping[str, Any] = field(default_factory=dict)
    pools_views: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", self.title or self.name)
        object.__setattr__(self, "warmup", self.warmup or ("sharp" if self.gradient == "sharp" else "plain"))
        object.__setattr__(self, "marker", self.marker or ("o" if self.colour else ""))
        if not re.fullmatch("(#[0-9a-fA-F]{6})?", self.colour) or self.marker not in ("", *MARKERS):
            raise InputError(f"{self.name}: give colour='#0072b2', say, and for marker one of {MARKERS}")
        if not self.title.isprintable() or len(self.title) > LONGEST_TITLE:
            raise InputError(f"{self.name}: the title must be one line of at most {LONGEST_TITLE} characters")
        for name, known in (
            ("family", FAMILIES),
            ("head", HEADS),
            ("objective", OBJECTIVES if self.objective in OBJECTIVES else OBJECTIVES.names()),
            ("loss", LOSSES if self.loss in LOSSES else LOSSES.names()),
            ("gradient", GRADIENTS),
            ("warmup", ("plain", "sharp")),
            ("post_hoc", POST_HOC),
        ):
            if getattr(self, name) not in known:
                choices = ", ".join(map(str, known))
                raise InputError(f"{self.name}: {name} must be one of {choices}, not {getattr(self, name)!r}")
        if extra := sorted(self.on_texts.keys() - self.fixed.keys()):
            raise InputError(f"{self.name}: on_texts has {', '.join(extra)}, which fixed must have too")

    def fixed_with(self, backbone: str) -> dict[str, Any]:
        """The training settings that no run with this backbone changes."""
        return {**self.fixed, **(self.on_texts if backbone == "encoder" else {})}

    @property
    def is_robust(self) -> bool:
        """Whether the method trains against a shift."""
        return OBJECTIVES[self.objective].robust

    @property
    def settings(self) -> tuple[str, ...]:
        """The training settings that this method reads beside those that every method reads."""
        recipe = OBJECTIVES[self.objective]
        return (*recipe.settings, *recipe.own, *GRADIENTS[self.gradient])


# Colours by Okabe and Ito, which colour-blind readers tell apart, and by Tol.
PACKAGED = {
    method.name: method
    for method in (
        Method(
            name="recommended",
            title="Recommended",
            family="recommended",
            colour="#d4271d",
            marker="*",
            head="single",
            gradient="sharp",
            fixed={"rho": 0.2, "sharp_every": 1, "average": 0.0, "views": ALL_VIEWS},
            on_texts={"rho": 0.02},
            pools_views=True,
        ),
        Method(
            name="single",
            title="Single Expert",
            family="baseline",
            colour="#7f7f7f",
            marker="o",
            head="single",
        ),
        Method(name="vanilla", title="Vanilla MoE", family="baseline", colour="#000000", marker="s"),
        Method(
            name="mocae",
            title="MoCaE",
            family="baseline",
            colour="#cc79a7",
            marker="D",
            post_hoc="per_expert_temperature",
            weights_of="vanilla",
        ),
        Method(
            name="fgr", title="FGR", family="baseline", colour="#e69f00", marker="v", gradient="rectified"
        ),
        Method(
            name="robust",
            title="Robust MoE",
            family="robust",
            colour="#0072b2",
            marker="^",
            objective="tilted",
        ),
        Method(
            name="robust_filtered",
            title="Robust Filtered",
            family="robust",
            colour="#56b4e9",
            marker="P",
            objective="filtered",
        ),
        Method(
            name="fgr_robust",
            title="FGR + Robust",
            family="robust",
            colour="#009e73",
            marker="X",
            objective="tilted",
            gradient="rectified",
        ),
        Method(
            name="entropic",
            title="Entropic Risk",
            family="beyond",
            colour="#d55e00",
            marker="<",
            objective="entropic",
        ),
        Method(
            name="robust_brier",
            title="Robust Brier",
            family="beyond",
            colour="#882255",
            marker=">",
            objective="tilted",
            loss="brier",
        ),
        Method(name="cvar", title="CVaR", family="beyond", colour="#999933", marker="h", objective="cvar"),
        Method(
            name="sharp", title="Sharp MoE", family="sharp", colour="#c1272d", marker="4", gradient="sharp"
        ),
        Method(
            name="sharp_single",
            title="Sharp Single",
            family="sharp",
            colour="#b8860b",
            marker="d",
            head="single",
            gradient="sharp",
        ),
        Method(
            name="sharp_filtered",
            title="Sharp Filtered",
            family="sharp",
            colour="#44aa99",
            marker="p",
            objective="filtered",
            gradient="sharp",
        ),
        Method(
            name="sharp_brier",
            title="Sharp Brier",
            family="sharp",
            colour="#aa4499",
            marker="H",
            objective="tilted",
            loss="brier",
            gradient="sharp",
        ),
    )
}


def check_method(name: str, method: Any) -> None:
    """Refuse what is no card of this name, or uses the weights of a method that has none of its own."""
    if not isinstance(method, Method):
        raise refusal(f"the method {name!r}", "a Method(...)", method)
    if method.name != name:
        raise InputError(f"the method {name!r} calls itself {method.name!r}: give it one name")
    if method.weights_of is not None:
        METHODS.check(method.weights_of)
        if METHODS[method.weights_of].weights_of is not None:
            raise InputError(f"{name}: weights_of must name a method that trains, not {method.weights_of!r}")


def _check_new(name: str, method: Any) -> None:
    """Refuse a user's card that would look like one of calmoe's; a record's may: calmoe's may be younger."""
    check_method(name, method)
    look = method.colour.lower(), method.marker
    for other in PACKAGED.values():
        if name != other.name and method.colour and look == (other.colour, other.marker):
            raise InputError(
                f"{name} looks like {other.title} in figures: give another colour than {method.colour}, or "
                f"another marker than {method.marker!r}"
            )


METHODS = Registry("method", "calmoe.methods", PACKAGED, _check_new)
"""All methods by name: `register(card)` adds one."""


def own_settings() -> dict[str, Setting]:
    """The settings that single objectives declare, by name; no two may declare one name differently."""
    declared: dict[str, Setting] = {}
    absent = {name for name in OBJECTIVES if (origin := OBJECTIVES.origin(name)) and not origin.present}
    for objective in sorted(OBJECTIVES, key=absent.__contains__):  # what records alone name comes last
        for name, setting in OBJECTIVES[objective].own.items():
            if declared.setdefault(name, setting) != setting and objective not in absent:
                raise InputError(f"{objective} declares {name!r} otherwise than another objective: rename it")
    return declared


def register(method: Method) -> None:
    """Make a method of one's own known by its name, in this process.

    Args:
        method: Its card; an InputError says what is wrong with it.

    Example:
        >>> register(Method(name="gentle", objective="tilted", fixed={"eta": 0.5}))
        >>> METHODS["gentle"].title
        'gentle'
        >>> del METHODS["gentle"]
    """
    METHODS.register(getattr(method, "name", ""), method)


def card(name: str) -> Method:
    """The card of a method; one that nobody registered has its name for a title.

    Args:
        name: The method.

    Returns:
        Its card.

    Example:
        >>> card("mine").title, card("vanilla").title
        ('mine', 'Vanilla MoE')
    """
    return METHODS.get(name) or Method(name=name)


def method_title(name: str) -> str:
    """What tables and figures call the method."""
    return METHODS[name].title if name in METHODS else name


def source(name: str) -> str:
    """The method whose trained model `name` uses: mostly its own.

    Args:
        name: The method.

    Returns:
        The name of the method that is trained.

    Example:
        >>> source("mocae"), source("robust")
        ('vanilla', 'robust')
    """
    return card(name).weights_of or name


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """The methods named, each once: known ones in the table's order, then others as they come.

    Args:
        names: Methods, in any order.

    Returns:
        The same names in the order of tables.

    Example:
        >>> in_order(["mine", "robust", "single", "robust"])
        ('single', 'robust', 'mine')
    """
    named = dict.fromkeys(names)
    return (*(name for name in METHODS if name in named), *(name for name in named if name not in METHODS))


def families(names: Iterable[str]) -> list[list[str]]:
    """The methods named, in order, a list a family.

    Args:
        names: Methods, in any order.

    Returns:
        One list a family, in the order of tables.

    Example:
        >>> families(["robust", "mine", "single"])
        [['single'], ['robust'], ['mine']]
    """
    ordered = in_order(names)
    grouped = [[name for name in ordered if card(name).family == family] for family in FAMILIES]
    return [family for family in grouped if family]

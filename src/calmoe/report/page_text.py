"""The words of a run's page: how its sections and figures are read, as fits what the run has."""

from calmoe.report.figures import THIN
from calmoe.report.frontier_routing import BUDGETS

BARS = "Bars are one standard error over seeds."
BINS = (
    f"Bars are 95 % intervals. Faint points are bins of fewer than {THIN} rows, in the mean over seeds: "
    "their accuracy says little."
)
SWEPT = (
    "as one temperature sweeps, and the lowest that any temperature reaches within a budget. Curves that "
    "coincide differ by their temperature alone. A method has no line on the right where some seed needs a "
    f"budget above {BUDGETS[-1]:g}. Bars and bands are one standard error over seeds."
)
CAPTIONS = {
    "reliability": "Reliability, as trained. Points above the dotted line: less sure than right; below: more "
    f"sure than right. {BINS} The strip shows how many rows have that confidence.",
    "reliability_scaled": f"Reliability, after the temperature that validation chose. {BINS}",
    "histograms": "How confident each method is, as trained. The gap is mean confidence minus accuracy: "
    "above zero is overconfident.",
    "histograms_scaled": "How confident each method is, after the temperature that validation chose.",
    "groups": "Accuracy and ECE of every group, as trained. Compare methods within a group: small groups "
    f"have an inflated ECE. {BARS}",
    "groups_scaled": f"Accuracy and ECE of every group, after the temperature that validation chose. {BARS}",
    "levels": "Accuracy and mean confidence by level of agreement. Where confidence lies above accuracy, the "
    "method is overconfident on those rows. Bars are 95 % intervals of the accuracy, bands one standard "
    "error of the confidence over seeds.",
    "frontier": f"ECE against hard ECE {SWEPT}",
    "tilt": "The tilted objectives during training: how many examples are pushed away, and how far the "
    "adversary's weights are from even (Γ_eff = 1 is even). Bands are one standard error over seeds. Robust "
    "Filtered is not here: it tilts a part of each batch only, and training keeps no record of its weights.",
    "routing": "How evenly the router spreads its weight, and how much the experts disagree, on easy and on "
    "hard rows. Thin bars are one standard error over seeds.",
    "examples": "Each method's probabilities for the true class and the likeliest others, from one seed.",
    "domains": "Example images; the target domain was not trained on.",
    "eta_gamma": "How far the tilted weights of a batch are from even, by η, in the last epoch.",
}
HOW = {
    "results": "ECE is the average gap between confidence and accuracy; NLL and Brier also reward being "
    "right. “+TS” is after one temperature fitted on validation, “hard” is the hard subset. Bold is the best "
    "mean of those with the most seeds, which alone proves nothing. Select a heading to sort.",
    "paired": "Each method minus Vanilla MoE, seed by seed. Below zero is better, but for accuracy. Bold "
    "intervals leave out zero; they are not corrected for their number.",
    "comparison": "The paper's cells beside ours, mean ± standard error over seeds. Where both are of one "
    "experiment, a difference of more than two combined standard errors is marked.",
    "confidence": "Is a method right as often as it says? Perfect calibration lies on the dotted line. "
    "All figures: {protocol} protocol, with one temperature fitted to convergence; those of MoCaE's experts "
    "are fitted as the protocol says.",
    "groups": "A method can be calibrated on average and not within any group.",
    "frontier": "Much of a method's advantage can be its temperature. This asks what is left when every "
    "method may choose its own.",
    "inside": "What the objective, the router and the experts do.",
    "examples": "The worst failures, not typical images: hard test images on which the baseline, Vanilla MoE "
    "if it was run, is wrong with the most confidence. Some labels are doubtful themselves.",
    "domains": "What shifts: one image of every class in every domain.",
    "eta": "η sets how hard training leans on its largest losses; all else stays. Bars are standard errors "
    "over seeds. Choose η by validation, not from these test rows.",
    "warmup": "How many epochs of plain training come before the robust objective; all else stays. Bars are "
    "standard errors over seeds. Choose it by validation, not from these test rows.",
    "sweep": "One setting takes several values; all else stays. Bars are standard errors over seeds. Choose "
    "the value by validation, not from these test rows.",
}
PLAIN_CAPTIONS = {  # where there is no hard subset
    "frontier": f"Validation ECE against test ECE {SWEPT}",
    "routing": CAPTIONS["routing"].replace(", on easy and on hard rows", ""),
}
PLAIN_HOW = {
    "results": HOW["results"].replace(", “hard” is the hard subset", ""),
    "examples": "The worst failures, not typical images: test images on which the baseline, Vanilla MoE if "
    "it was run, is wrong with the most confidence.",
}
TARGET_CAPTIONS = {
    "frontier": f"Validation ECE, on the domains trained on, against test ECE, on the target domain, {SWEPT}",
}
FIGURES = {
    "Confidence and accuracy": (
        "confidence",
        ("reliability", "reliability_scaled", "histograms", "histograms_scaled"),
    ),
    "Groups": ("groups", ("groups", "groups_scaled", "levels")),
    "What a temperature can do": ("frontier", ("frontier",)),
    "Inside the mixture": ("inside", ("tilt", "routing")),
    "Example failures": ("examples", ("examples",)),
    "Domains": ("domains", ("domains",)),
}


def captions(hard: bool, target: bool) -> dict[str, str]:
    """By figure; hard: there is a hard subset, target: the test rows are a domain of their own."""
    return CAPTIONS | ({} if hard else PLAIN_CAPTIONS | (TARGET_CAPTIONS if target else {}))


def how_to_read(hard: bool) -> dict[str, str]:
    """By section."""
    return HOW | ({} if hard else PLAIN_HOW)

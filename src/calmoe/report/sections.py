"""The sections of a report's pages: their headings, how to read them, and which tables stand there.

Figures name their section on their cards (`calmoe.report.figure_cards`).
"""

import re
from dataclasses import dataclass

PROTOCOL = "(corrected|published)"
BARS = "Bars are one standard error over seeds."


@dataclass(frozen=True, kw_only=True)
class SectionCard:
    """A heading and how to read what follows; `{protocol}` stands for the run's.

    without_hard: how to read it where the data have no hard subset; tables: a pattern of their names.
    """

    heading: str
    how: str
    without_hard: str = ""
    tables: str = ""

    def how_for(self, hard: bool) -> str:
        return self.how if hard or not self.without_hard else self.without_hard

    def holds(self, table: str) -> bool:
        return bool(re.fullmatch(self.tables, table))


_RESULTS = (
    "ECE is the average gap between confidence and accuracy; NLL and Brier also reward being right. “+TS” is "
    "after one temperature fitted on validation{}. Bold is the best mean of those with the most seeds, which "
    "alone proves nothing. Select a heading to sort."
)
_NOT_CORRECTED = (
    "Below zero is better, but for accuracy. Bold intervals leave out zero; they are not corrected for their "
    "number."
)

RESULTS = SectionCard(
    heading="Results",
    how=_RESULTS.format(", “hard” is the hard subset"),
    without_hard=_RESULTS.format(""),
    tables=f"{PROTOCOL}(-scores)?",
)
PAIRED = SectionCard(
    heading="Against Vanilla MoE",
    how=f"Each method minus Vanilla MoE, seed by seed. {_NOT_CORRECTED}",
    tables=f"{PROTOCOL}-paired",
)
COMPARISON = SectionCard(
    heading="Beside the paper",
    how="The paper's cells beside ours. By all evidence its ± is the standard deviation over five seeds "
    "(ddof 0; its text says standard error): half of it is taken as the standard error of its mean. Our ± is "
    "the standard error. Where both are of one experiment, a difference of more than two combined standard "
    "errors is marked.",
    tables=f"({PROTOCOL}-)?comparison",
)
CONFIDENCE = SectionCard(
    heading="Confidence and accuracy",
    how="Is a method right as often as it says? Perfect calibration lies on the dotted line. All figures: "
    "{protocol} protocol, with one temperature fitted to convergence; those of MoCaE's experts are fitted as "
    "the protocol says.",
)
GROUPS = SectionCard(heading="Groups", how="A method can be calibrated on average and not within any group.")
FRONTIER = SectionCard(
    heading="What a temperature can do",
    how="Much of a method's advantage can be its temperature. This asks what is left when every method may "
    "choose its own.",
)
INSIDE = SectionCard(heading="Inside the mixture", how="What the objective, the router and the experts do.")
EXAMPLES = SectionCard(
    heading="Example failures",
    how="The worst failures, not typical images: hard test images on which the baseline, Vanilla MoE if it "
    "was run, is wrong with the most confidence. Some labels are doubtful themselves.",
    without_hard="The worst failures, not typical images: test images on which the baseline, Vanilla MoE if "
    "it was run, is wrong with the most confidence.",
)
DOMAINS = SectionCard(heading="Domains", how="What shifts: one image of every class in every domain.")
RUN_TABLES = (RESULTS, PAIRED, COMPARISON)  # the sections at the top of a run's page

TARGET_RESULTS = SectionCard(
    heading=RESULTS.heading,
    how=f"{RESULTS.without_hard} A mean over targets is taken within a seed first; only seeds that have "
    "every target count.",
    tables=RESULTS.tables,
)
TARGET_PAIRED = SectionCard(
    heading=PAIRED.heading,
    how="Each method minus Vanilla MoE, seed by seed: first the mean over targets, then target by target. "
    f"{_NOT_CORRECTED}",
    tables=f"{PROTOCOL}-(mean|paired)",
)
SCATTER = SectionCard(
    heading="Accuracy and calibration",
    how="Calibration is easily bought with accuracy, and the other way round: this shows both.",
)
TARGET_SECTIONS = (TARGET_RESULTS, TARGET_PAIRED, SCATTER, CONFIDENCE, COMPARISON)  # of the page over targets

"""The verdict in plain words. Each function turns fields of the `Verdict` into a sentence, and adds nothing.

No Greek, no jargon: errors are in points of a hundred, shifts are a group that grows.
"""

import math

from calmoe.auditing.presentation.plain_numbers import between, percent, points
from calmoe.auditing.statistics.repeats import Repeats
from calmoe.auditing.statistics.sequential import FEWEST_TO_LEARN
from calmoe.auditing.verdict import GroupOff, Verdict
from calmoe.errors import cut, shown
from calmoe.new_rows import EVERY_ROW
from calmoe.render.wording import decimal, listed, many, shortened

NOT_INDEPENDENT = "not decided: rows may not be independent"
TIMES = 1.5  # as high, or as low, as is true: said as a factor


def repeated(repeats: Repeats) -> str:
    """That rows seem to repeat each other, in one sentence.

    >>> repeated(Repeats("person"))
    'Many rows repeat the same person, with the same label'
    """
    if repeats.column is not None:
        return f"Many rows repeat the same {cut(repeats.column, 60)}, with the same label"
    return "Many rows look like copies of each other, or the model cannot tell kinds of rows apart"


def headline(verdict: Verdict) -> str:
    """The whole verdict in one sentence."""
    if verdict.out_of_order:
        return (
            "Check the file first: its probabilities are far from those of its experts and weights. Rows, "
            "experts or classes are out of order."
        )
    if verdict.repeats is not None:
        return f"{repeated(verdict.repeats)}: whether the probabilities are true is not decided."
    if verdict.worth == "reversed":
        return "The order is reversed: the model says least where it should say most."
    if verdict.worth in ("little", "none"):
        quality = {
            "may be true": "The probabilities may well be true",
            "off": f"The probabilities are off {between(verdict.ece)}",
            "not decided": "Too few rows tell whether the probabilities are true",
        }[verdict.truth]
        joint = "and" if verdict.truth == "off" else "but"
        more = "no more" if verdict.worth == "none" else "hardly more"
        return f"{quality}, {joint} the model is next to useless: it knows {more} than the base rates."
    if verdict.truth == "not decided":
        verb = "is" if verdict.rows == 1 else "are"
        return f"{many(verdict.rows, 'row')} {verb} too few to tell whether the probabilities are true."
    if verdict.truth == "off":
        size = "slightly off" if verdict.slight else "off" if verdict.small else "not true"
        return f"The probabilities are {size}: {_off(verdict)}{_besides(verdict)}."
    return f"The probabilities may well be true{_but(verdict)}."


def reliable(verdict: Verdict) -> bool:
    """Whether probabilities that are off may be used where so small an error does not matter."""
    steady = verdict.hidden != "hidden" and verdict.fragility != "fragile"
    return verdict.small and steady and not verdict.groups_worse


def _reliance(verdict: Verdict) -> str:
    """How far numbers that are off may be relied on."""
    if verdict.groups_worse:
        return f"Do not rely on the numbers, least of all for {_names(verdict.groups_worse, verdict)}"
    if not reliable(verdict):
        return "Do not rely on the numbers"
    most = points(verdict.farthest)
    but = f", and not for {_names(verdict.groups_off, verdict)}" if verdict.groups_off else ""
    return f"Use them where an error of {most} does not matter{but}"


def _off(verdict: Verdict) -> str:
    if verdict.side in ("both ways", "not decided"):
        signs = ", too high here and too low there" if verdict.side == "both ways" else ""
        return f"they are off {between(verdict.ece)}{signs}"
    if verdict.judged != "top":
        said, real = percent(verdict.confidence), percent(verdict.rate.value)
        times = verdict.confidence / verdict.rate.value if verdict.rate.value else 0.0
        times = times if verdict.side == "too high" else 1 / times if times else 0.0
        factor = f" ({decimal(times, 1)} times {verdict.side})" if times >= TIMES else ""
        return f"they are {verdict.side}, {said} on average where {real} of rows are {verdict.judged}{factor}"
    word = "overconfident" if verdict.side == "too high" else "underconfident"
    said, real = percent(verdict.confidence), percent(verdict.rate.value)
    return f"the model is {word}, {said} sure on average and right {real} of the time"


def _besides(verdict: Verdict) -> str:
    if verdict.hidden != "hidden":
        return ""
    by = f", by {points(verdict.hidden_by.low)} or more" if verdict.hidden_by else ""
    return f"; behind this average, kinds of rows differ further{by}"


def _but(verdict: Verdict) -> str:
    """What stands against probabilities that may be true on average."""
    average = f" on average, off {between(verdict.ece)}"
    if verdict.hidden == "hidden":
        return f"{average}, but only because errors cancel: a shift in the mix of rows can break them"
    if verdict.groups_off:
        return f"{average}, but not for {_names(verdict.groups_off, verdict)}"
    if verdict.fragility == "fragile":
        return f"{average}, but a shift in the mix of rows breaks them"
    if verdict.fragility == "steady" and verdict.hidden == "nothing found":
        return f": they are off {between(verdict.ece)}, and no shift that was tried breaks them"
    return f": they are off {between(verdict.ece)}"


def skill_line(verdict: Verdict) -> str:
    """What the model knows, in one line."""
    no_more = verdict.gain.low <= 0 and verdict.worth == "useful"
    text = (
        f"right on {percent(verdict.accuracy.value)} of rows, where always naming the most frequent class is "
        f"right on {percent(verdict.majority.value)}"
    )
    if verdict.auroc is not None and not math.isnan(verdict.auroc.value):
        text += f". AUROC {decimal(verdict.auroc.value, 2)} (0.5 is chance, 1 perfect)"
    worth = {
        "useful": "Some: it tells rows apart, but is right no more often" if no_more else "Useful",
        "reversed": "None as it stands, for its order is reversed",
        "spoiled": "Useful once repaired"
        if verdict.mended
        else f"Useful by its ranking, but {_zeros(verdict)}"
        if verdict.impossible
        else "Useful by its ranking, but its probabilities are worse than the base rates",
        "little": "Next to none",
        "none": "None: the base rates do better",
        "not decided": "Not decided",
    }[verdict.worth]
    line = f"{worth}. It is {text}." if ":" in worth else f"{worth}: {text}."
    return f"{line} {_missed(verdict)}" if verdict.missed else line


def _zeros(verdict: Verdict) -> str:
    """How many rows give what came true probability zero."""
    gives = "gives" if verdict.impossible == 1 else "give"
    return f"{many(verdict.impossible, 'row')} {gives} what came true probability zero"


def _missed(verdict: Verdict) -> str:
    """Classes on which the model is never right."""
    classes = [f"{shown(name, 60)} ({many(rows, 'row')})" for name, rows in verdict.missed]
    what = "class" if len(classes) == 1 else f"{len(classes)} classes:"
    return f"It is never right on {what} {listed(shortened(classes))}."


def groups_line(verdict: Verdict) -> str | None:
    """For whom the probabilities are not true, and what is not judged; None where there are no columns."""
    left = f"not judged: {listed(shortened(verdict.not_judged))}." if verdict.not_judged else None
    judged = _groups(verdict)
    return f"{judged} {left[0].upper()}{left[1:]}" if judged and left else judged or left


def _groups(verdict: Verdict) -> str | None:
    if not verdict.grouped and not verdict.groups_off:
        return None
    if verdict.repeats is not None:
        return f"{NOT_INDEPENDENT}."
    few = verdict.groups_unknown
    known = f" Too few rows to say: {listed(shortened(few))}." if few else ""
    if verdict.groups_worse:
        worse = [f"{group.name} ({how_far(group)})" for group in verdict.groups_worse[:2]]
        more = len(verdict.groups_worse) - 2
        others = tuple(group for group in verdict.groups_off if group not in verdict.groups_worse)
        also = f" Not true for {_names(others, verdict)} either." if others and verdict.truth != "off" else ""
        lead = "not true for" if len(verdict.groups_off) == 1 else "worst for"
        return f"{lead} {listed([*worse, f'{more} more'] if more > 0 else worse)}.{also}{known}"
    if verdict.all_groups_off:
        worst = verdict.groups_off[0]
        return f"for no group are they true. Worst for {worst.name} ({how_far(worst)})."
    if verdict.groups_off:
        worst, names = verdict.groups_off[0], _names(verdict.groups_off, verdict)
        if names == worst.name:
            lead = "not true for" if len(verdict.groups_off) == 1 else "worst for"
            return f"{lead} {names} ({how_far(worst)}).{known}"
        return f"not true for {names}. Worst for {worst.name} ({how_far(worst)}).{known}"
    if verdict.truth == "off":
        return f"no group alone is surely off.{known}"
    return f"no single group was found for which they are not true.{known}"


def how_far(group: GroupOff) -> str:
    """What is said and what is true in a group."""
    if group.side in ("both ways", "not decided"):
        return f"off {between(group.ece)}"
    said, real = percent(group.confidence), percent(group.rate)
    if group.judged == "top":
        return f"{said} sure on average, right {real} of the time"
    return f"says {said} on average, {real} are {group.judged}"


def _names(groups: tuple[GroupOff, ...], verdict: Verdict) -> str:
    """Worst first; where all rows are off, of a column that is off throughout its worst group only."""
    first = {group.column: group.name for group in reversed(groups)}
    alike = verdict.truth == "off"
    telling = [g.name for g in groups if not (alike and g.all_off) or first[g.column] == g.name]
    return listed(shortened(telling))


def hidden_line(verdict: Verdict) -> str | None:
    """What an average cannot see; None where nothing was looked at."""
    if verdict.repeats is not None:
        return f"{NOT_INDEPENDENT}."
    if verdict.hidden == "not looked at":
        return None
    if verdict.hidden == "nothing found":
        beside = "beside the groups named above, " if verdict.groups_off else ""
        return f"{beside}nothing was found that the average hides."
    if verdict.hidden == "not decided":
        return "not decided: more rows would tell whether errors hide behind the average."
    by = f", by {points(verdict.hidden_by.low)} or more" if verdict.hidden_by else ""
    tellers = "router and experts" if verdict.routed else "the experts' own answers"
    source = {
        "routing": f" Only {tellers} tell these kinds apart.",
        "prediction": " The probabilities of all classes tell these kinds apart.",
        "both": f" The probabilities of all classes tell these kinds apart, {tellers} even better.",
    }.get(verdict.origin or "", "")
    if verdict.judged == "top":
        differ = f"it is right on some kinds more often than on others{by}"
        return f"of rows that it calls equally sure, {differ}.{source}"
    return f"rows of equal probability differ in how often they are {verdict.judged}{by}.{source}"


def threat_line(verdict: Verdict) -> str:
    """What breaks the probabilities: a group that is off, should it grow, and other shifts."""
    apart = verdict.groups_worse if verdict.truth == "off" else verdict.groups_off
    line, group = _shift_line(verdict), next(iter(apart), None)
    if group is None or verdict.fragility == "fragile":
        return line
    more = group.name if group.column is None else f"rows of {group.name}"
    return f"more {more}. Apart from that: {line}"


def _shift_line(verdict: Verdict) -> str:
    if verdict.repeats is not None:
        return f"{NOT_INDEPENDENT}."
    if verdict.worst is None:
        few = f"{many(verdict.rows, 'row')} {'is' if verdict.rows == 1 else 'are'} too few"
        alone = "rows of equal probability look all alike"
        return f"not looked at: {few if verdict.not_looked_at == 'few rows' else alone}."
    if verdict.fragility == "fragile":
        reach = points(max(verdict.worst.low, 0.0))
        return f"a shift in the mix of rows. A strong one can bring the error to {reach} or more."
    worst = f"The worst mix found is off {between(verdict.worst)}"
    today = max(verdict.ece.value, abs(verdict.balance.value))
    if verdict.fragility == "not decided" and verdict.worst.low <= today:
        return "no shift was found that clearly does, but these rows are too few to rule one out."
    if verdict.fragility == "not decided":
        more = "whether that doubles the error, more rows would tell"
        return f"perhaps a shift in the mix of rows. {worst}; {more}."
    if verdict.truth != "off" or verdict.slight:
        return f"no shift that was tried. {worst}."
    if verdict.worst.low <= today:
        return "no mix of rows that was tried makes it clearly worse."
    return f"other mixes of rows make it worse, but none that was tried twice as bad. {worst}."


def target_line(verdict: Verdict) -> str | None:
    """What to expect on the target; None where none was given."""
    there = verdict.elsewhere
    if there is None:
        return None
    known = ""
    if there.accuracy is not None and there.ece is not None:
        known = f"{percent(there.accuracy.value)} come true, off {between(there.ece)}"
    if there.state == "too few rows":
        return "nothing can be predicted: there are too few rows, here or there."
    if there.state == "unlike":
        return "nothing can be predicted: too few of the audited rows are like those."
    if there.state == "contradicted":
        return "labels from there contradict any prediction" + (f"; by them {known}." if known else ".")
    if there.tested:
        return (
            f"{known}. {many(there.tested, 'labelled row')} from there do not contradict it; a difference of "
            f"{points(there.unseen)} or less they would hardly show."
        )
    return f"{known}, if such rows come true as often there as here."


def action_line(verdict: Verdict) -> str:
    """What to do, and why."""
    if verdict.out_of_order:
        return "Put the file's rows, experts and classes in order, then audit again."
    kind, mended = verdict.action.kind, verdict.mended
    if kind == "separate":
        return (
            "Keep one row of each case and audit again: the audit and a repair take rows for independent. If "
            f"they are, say so: --cluster {EVERY_ROW}."
        )
    if kind == "repair" and mended is not None:
        # without its name: where two repairs gain as much, another seed of the audit chooses the other
        now, then = mended.before.value, mended.after
        if then.high < now or then.value < mended.before.low:
            most = f" ({points(then.high).split()[0]} at most)" if then.high < now else ""
            falls = f"from about {points(now)} to about {points(max(then.value, 0.0))}{most}"
            return f"Repair them: on new rows the error falls {falls}.{_left_to_check(verdict)}"
        return (
            "Repair them: on new rows the probabilities are closer to what happens (log loss "
            f"{decimal(mended.loss_after)} instead of {decimal(mended.loss_before)}), and off by "
            f"{points(then.high)} at most.{_left_to_check(verdict)}"
        )
    if kind == "turn":
        return (
            "See what the probabilities are about: is it the other class (say so with --positive), or are "
            "columns or labels swapped? Then audit again."
        )
    if kind == "train":
        return "Train a better model, with more rows or columns: no repair of probabilities adds knowledge."
    if kind == "collect" and verdict.truth == "off":
        few = "rows" if verdict.rows < FEWEST_TO_LEARN else "errors"
        return f"{_reliance(verdict)}. Label more rows and audit again: there are too few {few} for a repair."
    if kind == "collect" and verdict.truth == "may be true":
        most = points(verdict.farthest)
        return f"Label more rows like these and audit again: so far an error of up to {most} is possible."
    if kind == "collect":
        return "Label more rows like these and audit again."
    if verdict.elsewhere is not None and verdict.elsewhere.state != "predicted":
        return (
            "For the new data, label some of its rows and audit what the model says of them: what holds here "
            "need not hold there."
        )
    if kind == "watch" and verdict.truth == "off":
        return f"{_reliance(verdict)}; no repair was shown to help. Check new data first."
    if kind == "watch" and verdict.groups_off:
        names = _names(verdict.groups_off, verdict)
        return f"Do not rely on them for {names}. {_offer(verdict) or 'Check every new kind of data first.'}"
    if kind == "watch" and verdict.worth == "spoiled" and verdict.impossible:
        return f"Do not let the model say 0: {_zeros(verdict)}. Write more decimals, or raise zeros a little."
    if kind == "watch" and verdict.worth == "spoiled":
        return "Do not rely on the numbers: the base rates do better."
    if kind == "watch" and verdict.offered is not None:
        return f"Use them on rows like these only. {_offer(verdict)}"
    if kind == "watch":
        return "Use them on rows like these only, and check every new kind of data first."
    most = points(verdict.farthest)
    return f"Use them as they are: on average they are off by {most} at most. Check new data now and then."


def _offer(verdict: Verdict) -> str:
    """What a repair does that lowers the log loss, but raises the ECE."""
    if verdict.offered is None:
        return ""
    _, before, after, loss_before, loss_after = verdict.offered
    losses = f"from {decimal(loss_before)} to {decimal(loss_after)}"
    errors = f"from {points(max(before.value, 0.0))} to {points(max(after.value, 0.0))}"
    return f"Or repair them: on new rows the log loss falls {losses}, but the average error rises {errors}."


def _left_to_check(verdict: Verdict) -> str:
    """A repair does not know groups, nor all kinds of rows."""
    worst = next((group for group in verdict.groups_worse if group.column is not None), None)
    if worst is not None and not worst.all_off:
        return (
            f" It treats all groups alike: it may not mend {worst.name}, and may spoil groups that are true. "
            f"Audit new rows afterwards, or repair the rows of {worst.name} alone."
        )
    if worst is not None:
        return f" It treats all groups alike and may not mend {worst.name}: look there again afterwards."
    if verdict.hidden == "hidden":
        return " That is the average: some kinds of rows may stay off, so audit new rows afterwards."
    return " Keep other rows back to judge it by."

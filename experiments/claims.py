# SPDX-License-Identifier: MIT
"""Statements about tables, and what is expected of them.

A claim must hold, unless it is among the known disagreements of its experiment, each of which has a
reason; then it must not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from experiments.record import Experiment, Record

OURS = ("register", "coframe.track")  # what is measured against all others
STARTS = ("start", "Raw-data", "Initialization")  # rows that are no method
NEAR = 0.2  # of the paper's figure: how far a reproduced one may be off


@dataclass(frozen=True)
class Claim:
    """A statement, whether our run bears it out, and what stands against it or for it."""

    text: str
    holds: bool
    detail: str = ""
    about: str = "paper"  # whose claim it is: "paper", "ours", or "figures": near the paper's


@dataclass(frozen=True)
class Verdict:
    """A claim beside what is expected of it."""

    claim: Claim
    reason: str | None  # why it is known not to hold; None: it must

    @property
    def expected(self) -> bool:
        """Whether it came out as it should."""
        return self.claim.holds == (self.reason is None)


def judged(experiment: Experiment, record: Record) -> list[Verdict]:
    """The verdicts on a record, and on known disagreements that nobody claims any more."""
    if record["size"] == "toy":  # what is known is known of the paper's data
        return [Verdict(claim, None) for claim in experiment.claims(record)]
    found = [
        Verdict(claim, experiment.KNOWN.get(claim.text)) for claim in experiment.claims(record)
    ]
    texts = {verdict.claim.text for verdict in found}
    gone = [
        Verdict(Claim(text, True, "no such claim"), reason)
        for text, reason in experiment.KNOWN.items()
        if text not in texts
    ]
    return found + gone


def surprises(experiment: Experiment, record: Record) -> list[str]:
    """What did not come out as expected, a sentence each.

    At toy size nothing is expected: the paper's orders need its data.
    """
    if record["size"] == "toy":
        return []
    return [
        f"{record['name']}:"
        f" {'a known disagreement holds' if each.claim.holds else 'does not hold'}:"
        f" {each.claim.text} ({each.claim.detail})"
        for each in judged(experiment, record)
        if not each.expected
    ]


def below(
    table: Record,
    method: str,
    others: Sequence[str],
    text: str,
    columns: Sequence[str] | None = None,
) -> Claim:
    """That the mean errors of a method are at or below those of others, in all or some columns."""
    rows = {row["method"]: row for row in table["rows"] if row["ours"]}
    missing = [name for name in (method, *others) if name not in rows]
    found = [
        counter
        for column in (table["columns"] if columns is None else columns)
        for other in others
        if not missing and (counter := better(table, rows[other], rows[method], column))
    ]
    against = found + [f"{name} was not run" for name in missing]
    chosen = table["columns"] if columns is None else columns
    lead = "" if against else closest(table, rows, method, others, chosen)
    return Claim(text, not against, "; ".join(against) or lead)


def closest(
    table: Record,
    rows: Mapping[str, Record],
    method: str,
    others: Sequence[str],
    columns: Sequence[str],
) -> str:
    """Where a method that is below the others leads by the fewest standard errors; nothing with
    fewer than three realisations.
    """
    leads = [
        (found, f"{other} in {column}")
        for other in others
        for column in columns
        if (found := in_errors(rows[other], rows[method], table["columns"].index(column)))
        is not None
    ]
    if not leads:
        return ""
    lead, where = min(leads)
    return f"the closest is {where}, {lead:.1f} s.e. above"


def in_errors(above: Record, below: Record, c: int) -> float | None:
    """How far a row is above another in a column, in standard errors of the difference over the
    realisations; None of fewer than three, or where nothing scatters.
    """
    if None in above["each"][c] + below["each"][c] or len(above["each"][c]) < 3:
        return None
    differences = np.subtract(above["each"][c], below["each"][c])
    error = differences.std(ddof=1) / np.sqrt(len(differences))
    return float(differences.mean() / error) if error > 0 else None


def better(table: Record, other: Record, method: Record, column: str) -> str | None:
    """By how much another method is better in a column, in standard errors of the difference over
    the realisations too.
    """
    c, digits = table["columns"].index(column), table["digits"]
    theirs, ours = other["ours"][c], method["ours"][c]
    if theirs is None or ours is None or theirs >= ours:
        return None
    lead = in_errors(method, other, c)
    scatter = "" if lead is None else f", {lead:.1f} s.e."
    return f"{other['method']} {theirs:.{digits}f} < {ours:.{digits}f} in {column}{scatter}"


def below_each(
    table: Record,
    method: str,
    others: Sequence[str],
    where: str = "",
    columns: Sequence[str] | None = None,
) -> list[Claim]:
    """The same, a claim for each of the others."""
    title = table["title"].split(":")[0]
    return [
        below(table, method, [other], f"{title}: {method} below {other}{where}", columns)
        for other in others
    ]


def standing(tables: Sequence[Record]) -> list[Claim]:
    """Two claims for each table of errors: ours is best in each column, and meets the paper's."""
    return [claim for each in tables if each["errors"] for claim in (*best(each), *near(each))]


def best(table: Record) -> list[Claim]:
    """That ours is at or below every other method in every column."""
    measured = [
        row["method"] for row in table["rows"] if row["ours"] and row["method"] not in STARTS
    ]
    return [
        replace(
            below(
                table,
                ours,
                [name for name in measured if name != ours],
                f"{table['title']}: {ours} at or below every other method in every column",
            ),
            about="ours",
        )
        for ours in OURS
        if ours in measured and len(measured) > 1
    ]


def near(table: Record) -> list[Claim]:
    """That every figure is near the paper's."""
    both = [
        row for row in table["rows"] if row["ours"] and row["paper"] and row["method"] not in STARTS
    ]
    digits = table["digits"]
    far = [
        f"{row['method']}, {column}: {ours:.{digits}f}, the paper {paper:.{digits}f}"
        for row in both
        for column, ours, paper in zip(table["columns"], row["ours"], row["paper"], strict=True)
        if ours is not None and paper is not None and abs(ours - paper) > NEAR * paper
    ]
    return (
        [
            Claim(
                f"{table['title']}: every figure within 20 % of the paper's",
                not far,
                "; ".join(far),
                "figures",
            )
        ]
        if both
        else []
    )


def mean_of(table: Record) -> dict[str, dict[str, float]]:
    """Our figures by method and column; those that could not be taken are left out."""
    return {
        row["method"]: {
            name: value
            for name, value in zip(table["columns"], row["ours"], strict=True)
            if value is not None
        }
        for row in table["rows"]
        if row["ours"]
    }

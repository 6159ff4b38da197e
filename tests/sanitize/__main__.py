"""`python -m tests.sanitize --mutants 300`: draws mutants until so many are faulty, and says how many the checks found.

Rules take turns, so that each has its share; the seed says which mutants of a rule come first.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator

import torch  # noqa: F401  (before processes are forked)

from tests.sanitize.check import Row, examine, warm_up
from tests.sanitize.mutants import Mutant, every_mutant


def in_turns(seed: int, only: str = "") -> Iterator[Mutant]:
    """All mutants in a random order, one of each rule after the other."""
    by_rule = defaultdict[str, list[Mutant]](list)
    for mutant in every_mutant():
        if only in mutant.rule:
            by_rule[mutant.rule].append(mutant)
    order = random.Random(seed)
    for mutants in by_rule.values():
        order.shuffle(mutants)
    while any(by_rule.values()):
        for mutants in by_rule.values():
            if mutants:
                yield mutants.pop()


def main() -> int:
    """Draw, run, print a line for each class and for each mutant that was missed; 1 if too many were."""
    parser = argparse.ArgumentParser(prog="python -m tests.sanitize", description=__doc__)
    parser.add_argument("--mutants", type=int, default=300, help="faulty ones wanted (default: 300)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rule", default="", help="only rules with this in their name")
    parser.add_argument("--part", default="0/1", help="k/n: every n-th mutant from the k-th on")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each mutant")
    asked = parser.parse_args()
    part, parts = map(int, asked.part.split("/"))
    warm_up()
    faulty, tally, missed, told = 0, defaultdict[str, Counter[str]](Counter), list[Row](), list[Row]()
    for number, mutant in enumerate(in_turns(asked.seed, asked.rule)):
        if faulty == asked.mutants:
            break
        if number % parts != part:
            continue
        row = examine(mutant)
        faulty += row.is_faulty
        tally[mutant.rule][_verdict(row)] += 1
        if row.is_faulty and not row.is_found:
            missed.append(row)
        elif row.kinds and not row.is_faulty and not row.unusable:
            told.append(row)
        if asked.json:
            print(json.dumps({**row.__dict__, "verdict": _verdict(row)}), flush=True)
    return _report(tally, missed, told)


def _verdict(row: Row) -> str:
    if row.unusable:
        return "no program"
    if row.is_faulty:
        return "found" if row.is_found else "missed"
    return "told by the checks alone" if row.kinds else "wrong values only" if row.error else "equal"


def _report(tally: dict[str, Counter[str]], missed: list[Row], told: list[Row]) -> int:
    names = ("found", "missed", "told by the checks alone", "wrong values only", "equal", "no program")
    for rule, counts in sorted(tally.items()):
        print(f"{rule:20s}", *[f"{name} {counts[name]}," for name in names if counts[name]])
    found = sum(counts["found"] for counts in tally.values())
    print(f"found {found} of {found + len(missed)} faulty mutants")
    for title, rows in (("missed", missed), ("alone", told)):
        for row in rows:
            print(f"{title}: {row.mutant} checks {row.kinds}, oracle {row.bounds or row.race} {row.error}")
    return int(bool(missed) and found < 49 * len(missed))


if __name__ == "__main__":
    sys.exit(main())

"""The table construct x engine of a suite whose tests are `ENGINE: CONSTRUCT`, for docs/conformance.md and the end of a run."""

WORDS = {"pass": "yes", "excluded": "otherwise", "wrong": "**wrong**", "none": "not run"}


def cells(outcomes, allowed):
    """(engines, constructs, {(engine, construct): key of WORDS}) of {test: outcome}."""
    found = {}
    for test, outcome in outcomes.items():
        engine, _, construct = test.partition(": ")
        found[engine, construct] = outcome if outcome == "pass" else "excluded" if test in allowed else "wrong"
    return list(dict.fromkeys(e for e, _ in found)), list(dict.fromkeys(c for _, c in found)), found


def lines(outcomes, allowed):
    """The table in Markdown, a line a construct, and last how many each engine shows as sent."""
    engines, constructs, found = cells(outcomes, allowed)
    rows = [["construct", *engines], ["---"] * (len(engines) + 1)]
    rows += [[each, *(WORDS[found.get((engine, each), "none")] for engine in engines)] for each in constructs]
    totals = [sum(found.get((engine, each)) == "pass" for each in constructs) for engine in engines]
    rows.append([f"**of {len(constructs)}**", *totals])
    return [f"| {' | '.join(map(str, row))} |" for row in rows]

"""The questions behind a group's verdict, each answered by a rule of the analysis."""

from __future__ import annotations

from sparktop.analysis.balance import rules, swings
from sparktop.model.balance import Balance, BalanceWord
from sparktop.panels.balance.checks import Question


def questions(balance: Balance) -> list[Question]:
    """Return all questions with their answers, always in the same order."""
    said = {balance.word_now, *balance.also}
    judged = balance.word_now is not BalanceWord.UNKNOWN
    # Without a known router the verdict "uneven" covers swings, too.
    swinging = BalanceWord.OSCILLATING in said or (BalanceWord.UNEVEN in said and balance.router is None)
    uneven = BalanceWord.UNEVEN in said
    titles = (
        ("Does the lead change again and again?", swings.lead(balance)),
        ("Is there one rhythm?", swings.rhythm(balance)),
        ("Do they fill and empty in turns?", swings.turns(balance)),
        ("Do convoys of requests come and go?", swings.convoys(balance)),
        ("Are requests sent in herds?", swings.herds(balance)),
    )
    counted, ahead, requests = balance.arrivals is not None, rules.ahead(balance), rules.requests(balance)
    unequal = requests.holds
    # "Uneven" has three reasons: this rule, the counters, and a drained backend.
    first = uneven and (ahead.holds or (balance.router is not None and not unequal))
    return [
        Question("Is there enough data?", judged, rules.enough(balance)),
        *(
            Question(
                title, swinging and rule.holds if judged and (rule.name != "herds" or counted) else None, rule
            )
            for title, rule in titles
        ),
        Question(
            "Does starving cost throughput?",
            BalanceWord.STARVED in said if judged else None,
            rules.starved(balance),
        ),
        Question("Is the same one always ahead?", first if judged else None, ahead),
        Question(
            "Did one get most of the requests?", None if balance.requests is None else unequal, requests
        ),
    ]

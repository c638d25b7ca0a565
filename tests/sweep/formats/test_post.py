"""A sweep's result as a post for a forum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from sparktop.cli import main
from sparktop.sweep.formats.post import MOST_LINES
from sparktop.sweep.formats.written import SweepPrivacy, sweep_report
from sparktop.sweep.result.results import LevelResult, SweepResult, TargetResult, Validity
from sparktop.sweep.result.store import save
from tests.sweep.formats.full_results import full_sweep
from tests.sweep.made_results import made_level, made_sweep, simulated_level

LEVELS = (1, 2, 4, 8, 16, 32, 64)


def post_of(result: SweepResult, **options: object) -> str:
    """Return a result as a post."""
    return sweep_report(result, "post", **options)  # type: ignore[arg-type]  # options of the function


def paragraphs(post: str) -> list[str]:
    """Return the blocks of a post that are prose."""
    blocks = post.strip().split("\n\n")
    return [one for one in blocks if not one.startswith(("|", "```", "#")) and one.strip()]


def table(post: str) -> list[list[str]]:
    """Return the cells of the rows of a post's table."""
    lines = [line for line in post.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def routed_sweep(
    balance: Mapping[str, object] | None = None, step: float = 0.3, split: Sequence[Mapping[str, int]] = ()
) -> SweepResult:
    """Return a sweep of a router over `alpha` and `omega`, and of `alpha` alone, four times as fast."""

    def level(concurrency: int) -> LevelResult:
        made = made_level(concurrency, step=step)
        served = {"balance": balance, "runs_split": tuple(split), "served_by": {"alpha": 6, "omega": 2}}
        return made.model_copy(update=served)

    alone = [made_level(concurrency, step=0.1) for concurrency in (1, 2, 4)]
    result = full_sweep().model_copy(update={"slo": None, "guard": None})
    proxy, alpha = result.targets
    return result.model_copy(
        update={
            "targets": (
                proxy.model_copy(
                    update={
                        "levels": tuple(map(level, (2, 4))),
                        "engine": "litellm",
                        "strategy": "least-busy",
                    }
                ),
                alpha.model_copy(update={"levels": tuple(alone)}),
            )
        }
    )


@pytest.mark.parametrize("count", [1, 6])
def test_a_post_is_short_and_each_paragraph_is_one_line(count: int) -> None:
    """Tables of many targets lose levels in the middle, not the first or the last."""
    levels = [simulated_level(one, 100, 4, 3) for one in LEVELS]
    post = post_of(made_sweep(*((f"target-{number}", levels) for number in range(count))))
    assert len(post.splitlines()) <= MOST_LINES
    assert all("\n" not in one for one in paragraphs(post))
    rows = table(post)
    assert {rows[0][0], rows[-1][0]} == {"c1", "c64"}
    shown = len({row[0] for row in rows})
    assert len(rows) == count * shown
    assert ("Left out here" in post) == (shown < len(LEVELS))


def test_the_answer_comes_first_then_what_was_measured() -> None:
    """Headline, machines and servers, load, winner by level with its lead, doubts: before the table."""
    result = made_sweep(("fast", [made_level(2, step=0.2)]), ("slow", [made_level(2, step=0.3)]))
    machines = {"x": "NVIDIA DGX Spark, NVIDIA GB10, driver 580.95", "y": "NVIDIA DGX Spark, NVIDIA GB10"}
    first = result.targets[0].model_copy(update={"version": "0.32.0", "engine": "vllm", "machines": machines})
    post = post_of(result.model_copy(update={"targets": (first, *result.targets[1:])}))
    answer, compared, levels, doubts, *_ = paragraphs(post)
    assert answer.startswith("**`fast` wins")
    assert "Machines: NVIDIA DGX Spark, NVIDIA GB10, driver 580.95; NVIDIA DGX Spark, " in compared
    assert "`fast`: vLLM 0.32.0, 2 machines." in compared
    assert "100 tokens in, 4 out, burst, 3 runs a level; 2026-03-22" in compared
    assert "Decode: `fast` best at c2 (+50 % against `slow`)." in levels
    assert doubts == "No level has a warning."
    assert table(post)[0][2].startswith("**")
    assert not table(post)[1][2].startswith("**")


def test_a_router_has_its_loss_and_the_cause() -> None:
    """Its rate against that of its engines alone, the levels where less is certain, and what was uneven."""
    balance = {
        "verdict": "oscillating",
        "period_s": 9.2,
        "starved_percent": {"alpha": 1.0, "omega": 23.4},
        "cause": "cooldown",
    }
    post = post_of(routed_sweep(balance, split=({"alpha": 3, "omega": 1}, {"alpha": 2, "omega": 2})))
    cost = next(one for one in paragraphs(post) if "reaches" in one)
    assert cost.startswith(
        "At c2 to c4, `proxy` (LiteLLM, least-busy) reaches 33 % of the decode rate of "
        "2 independent servers like `alpha`, each with half of the requests: it loses"
    )
    assert "it loses 67 % at c2 and 67 % at c4" in cost
    assert (
        "oscillating, a swing every 9 s, `omega` nearly empty 23 % of the time, 50 to 75 % of each run"
        in cost
    )
    assert "`alpha` starved" not in cost
    assert "cooldown" in cost


def test_doubts_name_their_levels() -> None:
    """Whoever sees a "?" in the table finds the level beside its reason."""
    fast = [made_level(at, step=0.2) for at in (2, 4)]
    doubted = fast[0].model_copy(update={"validity": (Validity(code="throttled", message="x"),)})
    result = made_sweep(("fast", [doubted, fast[1]]), ("slow", [made_level(at, step=0.3) for at in (2, 4)]))
    post = post_of(result)
    assert "throttled (1 of 4 levels: `fast` c2)" in post
    assert "(warning at c = 2: throttled)" in paragraphs(post)[0]


def test_a_router_without_its_engines_has_an_unknown_cost() -> None:
    """The post names the remedy; a loss that the balance knows is stated."""
    both = routed_sweep()
    alone = both.model_copy(update={"targets": both.targets[:1]})
    assert "costs is not known: measure one of its servers alone with half of the requests, too" in post_of(
        alone
    )
    lossy = routed_sweep({"verdict": "starved", "lost_percent": 11.6})
    post = post_of(lossy.model_copy(update={"targets": lossy.targets[:1]}))
    assert "loses about 12 % of the tokens to uneven load at c2: starved" in post


def test_an_anonymous_post_names_nothing_of_the_site() -> None:
    """No names, addresses, files or commands."""
    post = post_of(full_sweep(), privacy=SweepPrivacy(anonymous=True))
    assert not any(
        word in post for word in ("proxy", "alpha", "omega", "10.1.2", "sparktop sweep", "--format")
    )
    assert "router-1" in post


def test_nothing_measured_is_said() -> None:
    """A sweep that failed has a post without table and plot."""
    failed = made_sweep().model_copy(
        update={"targets": (TargetResult(name="a", url="http://x", error="refused"),), "status": "failed"}
    )
    post = post_of(failed)
    assert "**Nothing was measured.**" in post
    assert "`refused`" in post or "refused" in post
    assert "|" not in post


def test_the_command_joins_results_and_repeats_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`report A B --format post` has both commands, and names the files to attach."""
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "before.json", made_sweep(("proxy", [made_level(2)])))
    save(tmp_path / "after.json", made_sweep(("tp2", [made_level(2, step=0.1)])))
    assert main(["report", "before.json", "after.json", "--format", "post"]) == 0
    post = capsys.readouterr().out
    assert "\nsparktop sweep proxy " in post
    assert "\nsparktop sweep tp2 " in post
    assert "`sparktop report before.json after.json --format json -o post.json`" in post
    assert main(["report", "before.json", "after.json", "--format", "json", "-o", "post.json"]) == 0
    assert main(["report", "post.json", "--format", "post"]) == 0
    assert "127.0.0.1" not in (tmp_path / "post.json").read_text(encoding="utf-8")


def test_other_tools_results_are_no_post(capsys: pytest.CaptureFixture[str]) -> None:
    """A published table has no plan to repeat: the message says which results have one."""
    assert main(["report", "ref:spark-topologies-2026-03", "--format", "post"]) == 2
    assert "--format post is for results of sparktop sweep" in capsys.readouterr().err


def test_a_result_in_doubt_says_so_next_to_its_answer() -> None:
    """Where half of the levels are in doubt, the doubts are the second paragraph, and stand there once."""
    doubted = full_sweep().model_copy(update={"slo": None})
    router = doubted.model_copy(update={"targets": doubted.targets[:1]})
    post = post_of(router)
    assert paragraphs(post)[1].startswith("**Read with care: 3 of 3 levels have a warning.** Warnings: ")
    assert post.count("Warnings: ") == 1
    assert "Read with care" not in post_of(doubted)

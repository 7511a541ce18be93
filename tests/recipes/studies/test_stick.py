"""The self-refinement recipe: which answer stands after a round, and what is left out of the means."""

import json

import pytest
from pocket.world import Constraint
from pocket.world import Task as PocketTask
from studies.stick import StickArguments, curves, main, spread

from checklist_rewards import Checklist
from checklist_rewards.errors import SampleError
from checklist_rewards.scores import Verdict, score_checklist
from checklist_rewards.self_refine import METHODS, Refinement, Round

ASKED = PocketTask("Write.", (Constraint("digits"), Constraint("question")))
CHECKLIST = Checklist.parse(["Is it good?"])


def answered(text: str, p: float | None) -> Round:
    if p is None:
        return Round(text, score_checklist(CHECKLIST, [Verdict(unanswered="off_label")]))
    return Round(text, score_checklist(CHECKLIST, [Verdict({"yes": p, "no": 1 - p})]))


def test_the_last_answer_stands_and_the_best_is_kept():
    done = Refinement((answered("7?", 0.75), answered("7", 0.25), answered("none", 0.5)), CHECKLIST, "rounds")
    stopped = Refinement((answered("none", 0.25),), CHECKLIST, "passed")
    found, lost = curves([ASKED, ASKED], [done, stopped], rounds=2)
    assert lost == 0
    assert found["score"] == {"last": [0.5, 0.25, 0.375], "best": [0.5, 0.5, 0.5]}
    assert found["gold"] == {"last": [0.5, 0.25, 0.0], "best": [0.5, 0.5, 0.5]}


@pytest.mark.parametrize(
    "failed",
    [
        Refinement((answered("7", None),), CHECKLIST, "unscored"),
        Refinement((answered("7", 0.5),), CHECKLIST, "no_reply: too_long"),
        Refinement((Round("7", None),), None, "no_checklist: nothing was written"),
        Refinement((), CHECKLIST, "no_reply: too_long"),
    ],
)
def test_a_failed_step_is_in_no_mean(failed):
    good = Refinement((answered("7?", 0.5),), CHECKLIST, "rounds")
    found, lost = curves([ASKED, ASKED], [failed, good], rounds=1)
    assert lost == 1
    assert found["gold"]["last"] == [1.0, 1.0]
    with pytest.raises(SampleError, match="none of the 1 prompts could be refined"):
        curves([ASKED], [failed], rounds=1)


def test_the_spread_is_from_the_lowest_to_the_highest_seed():
    runs = [{m: {c: [v, 1.0] for c in ("last", "best")} for m in ("score", "gold")} for v in (0.25, 0.75)]
    assert spread(runs)["gold"]["best"] == {"mean": [0.5, 1.0], "lowest": [0.25, 1.0], "highest": [0.75, 1.0]}


@pytest.mark.slow
@pytest.mark.study
def test_the_recipe_refines_pocket_prompts(pocket, tmp_path):
    out = tmp_path / "out"
    main(StickArguments(prompts=8, rounds=1, seeds=2, store=str(tmp_path / "store"), output_dir=str(out)))
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert list(summary["methods"]) == list(METHODS) and (out / "rounds.png").stat().st_size > 10_000
    first = [summary["methods"][method]["curves"]["gold"]["last"]["mean"] for method in METHODS]
    assert first[0][0] == first[1][0] and len(first[0]) == 2  # both methods begin with the same answers
    best = summary["methods"]["checklist"]["curves"]["score"]["best"]["mean"]
    assert best[1] >= best[0]

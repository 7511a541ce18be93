"""`list`: one line for everything there is."""

from checklist_rewards.pipelines import GENERATORS, REFINERS, list_pipelines

SECTIONS = ["pipelines", "generators", "refiners", "scorers", "backends", "checks", "prompts"]


def test_everything_is_listed_in_one_line_each(run, no_engine):
    shown = run("list")
    assert shown.stderr == ""
    lines = shown.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines if not line.startswith(" ")] == SECTIONS
    names = [line.split()[0] for line in lines if line.startswith("  ") and not line.startswith("   ")]
    assert names[: len(list_pipelines())] == list_pipelines()
    assert {entry.name for entry in (*GENERATORS, *REFINERS)} | {"checklist", "vllm", "openai"} < set(names)
    assert len(names) == len(set(names))
    assert all(len(line.split()) > 3 for line in lines if line.startswith("  "))


def test_one_section(run):
    shown = run("list checks").stdout
    assert shown.startswith("checks:") and sum(not text.startswith(" ") for text in shown.splitlines()) == 1
    line = 'words            The text has the required number of words. {"type": "words", "at_least": 50'
    assert line in shown

"""`lint`: what is wrong with prompts and configs, by file and line."""

from pathlib import Path

import pytest

from checklist_rewards.prompts import prompts_dir


def test_what_is_right_is_said_to_be(run, no_engine):
    Path("judge.md").write_text("{input} {target} {question}")
    Path("batch.md").write_text("{target}\n{checklist}")
    Path("writer.md").write_text("Ask about {input}, seeing {candidates}")
    Path("step.md").write_text("Merge {questions}")
    Path("mine.yaml").write_text("name: mine\ngenerator: {prompt: writer.md, kind: contrastive}\n")
    shown = run("lint", "judge.md", "batch.md", "writer.md", "step.md", "mine.yaml")
    assert shown.exit_code == 0 and shown.stderr == ""
    assert shown.stdout.splitlines() == [
        "judge.md: a judge prompt with {input}, {question}, {target}",
        "batch.md: a batch prompt with {checklist}, {target}",
        "writer.md: a generator prompt with {candidates}, {input}",
        "step.md: a stage prompt with {questions}",
        "mine.yaml: pipeline 'mine': contrastive generator, checklist scorer",
    ]


def test_without_files_the_packaged_prompts_are_checked(run):
    shown = run("lint")
    assert shown.exit_code == 0 and len(shown.stdout.splitlines()) == len(list(prompts_dir().glob("*/*.md")))


WRONG = {
    "order.md": ("# User\n{question}\n\n{target}\n", [], "order.md:4: {target} comes after {question}"),
    "typo.md": ("Ask about\n{input} {refrence}", [], "typo.md:2: unknown placeholder {refrence}; allowed"),
    "system.md": ("# System\n{input}\n# User\n{input}", [], "system.md:2: {input} stands in the system part"),
    "front.md": ("---\nauthor: me\n---\n{input}", [], "front.md:2: front matter"),
    "kind.md": ("Ask about {input}", ["--kind", "judge"], "kind.md:1: the placeholder {target} is missing"),
    "missing.md": (None, [], "missing.md: cannot be read"),
    "notes.txt": ("x", [], "notes.txt: neither a prompt (.md) nor a config"),
    "key.yaml": ("name: x\nscorer:\n  mode: item\n  metrik: pass\n", [], "key.yaml:4: scorer.metrik: unknown key"),
    "prompt.json": (
        '{\n"generator": {\n"prompt": "generators/tikc"\n}}',
        [],
        "prompt.json:3: generator.prompt: there is no prompt 'generators/tikc': give a Markdown file or one of",
    ),
    "broken.yaml": ("a: [\n", [], "broken.yaml:2: not valid YAML"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named_with_file_and_line(run, no_engine, name):
    content, options, words = WRONG[name]
    if content is not None:
        Path(name).write_text(content)
    shown = run("lint", name, *options)
    assert shown.exit_code == 2 and f"error: {words}" in shown.stderr and "1 of 1 files" in shown.stderr


def test_one_bad_file_does_not_hide_the_next(run):
    Path("a.md").write_text("{question} {target}")
    Path("b.md").write_text("{input}")
    Path("c.yaml").write_text("nam: x\n")
    shown = run("lint", "a.md", "b.md", "c.yaml")
    assert shown.exit_code == 2 and "a.md:1" in shown.stderr and "c.yaml:1" in shown.stderr
    assert shown.stdout.startswith("b.md: a generator prompt")

import json
from collections import Counter

import pytest

from checklist_rewards.errors import GenerationError
from checklist_rewards.generators import parse_questions
from checklist_rewards.judges.faults import NO_MARK, is_empty, question_fault

BOTH = ("Is it short?", "Does it name a city?")
FORMS = [
    "1. {}\n2. {}",
    "1) {}\r\n2) {}\r\n",
    "(1) {}\n[2] {}",
    "Q1: {}\nQ2: {}",
    "Question 1: {}\n\nQuestion 2: {}",
    "* {}\n• {}",
    "- [ ] {}\n- [x] {}",
    "- 1. {}\n- 2. {}",
    "### 1. {}\n### 2. {}",
    "{}\n{}",
    "1\\. {}\n2\\. {}",
    "1 - {}\n2 - {}",
    "1、{}\n2、{}",
    "1- {}\n2- {}",
    "a) {}\nb) {}",
    "а) {}\nб) {}",
    "①{}\n②{}",
    "（一）{}\n二、{}",
    "● {}\n・{}",
    "\u200f1. {}\u200f\n\u200f2. {}\u200f",
    "问题1：{}\n第2条：{}",
    "1. **长度**：{}\n2. **城市：**{}",
    "1. {} (oui/non)\n2. {}（はい／いいえ）",
    "一、内容\n1. {}\n二、格式\n1. {}",
    "What is asked?\n① {}\n② {}",
    "Вопрос 1: {}\nFrage 2: {}",
    "{}\n{}\n\n您还需要我补充其他问题吗？",
    "分析：\n1. 简短\n2. 城市\n\n检查清单：\n1. {}\n2. {}",
    "1. Content\n   1.1 {}\n   1.2 {}",
    "1. Content\n   a. {}\n   b. {}",
    # The dress of a question is taken off.
    "**1. {}**\n**2.** {}",
    "1. **Length**: {}\n2. **City:** {}",
    '1. "{}"\n2. "{}"',
    "1. **{}** (Yes/No)\n2. **{} (Y/N)**",
    "1. {} (Yes)\n2. **{}** (yes)",
    "1. {} Yes/No\n2. {} [yes or no]",
    "1. {} [ ] Yes [ ] No\n2. {} [ ] Yes [ ] No",
    "1. **Length**\n   {}\n2. **City:**\n   {}",
    "```\n1. {}\n2. {}\n```",
    # JSON is read.
    '["{}", "{}"]',
    '[{{"question": "{}"}}, {{"question": "{}", "weight": 3}}]',
    '{{"analysis": "What is asked?", "questions": ["{}", "{}"]}}',
    'Here it is:\n```json\n[\n  "{}",\n  "{}"\n]\n```\nShall I go on?',
    # What is said around the list is left out.
    "What does the user want? A short text.\n\n1. {}\n2. {}\n\nAnything else?",
    "Analysis: two things are asked.\n1. A short text\n2. A city\n\nAnswer:\n{}\n{}",
    "## Checklist\n- {}\n  - It should be.\n- {}\n\nLet me know!",
    "1. {}\n   this matters most.\n2. {}",
    "{}\n{}\n\nWould you like me to add others?",
    "<think>\n1. Is it this?\n2. Is it that?\n</think>\n1. {}\n2. {}",
    "1. Is it this?\n2. Is it that?\n</think>\n1. {}\n2. {}",
    "1. {}\n2. {}\n3. is it  short?",  # equal questions are one
    "1. Is it  short?\n2. Does it name\n   a city?",
]


@pytest.mark.parametrize("form", FORMS)
def test_every_usual_form_of_a_list_is_read(form):
    assert parse_questions(form.format(*BOTH)).questions == BOTH


def test_questions_of_other_scripts_end_with_their_own_marks():
    asked = ("回答是否简短？", "回答是否提到一座城市？")
    assert parse_questions(f"1、{asked[0]}（是/否）\n2．{asked[1]}").questions == asked
    assert parse_questions("هل هو قصير؟\nهل يذكر مدينة؟").questions == ("هل هو قصير؟", "هل يذكر مدينة؟")
    for asked in ("您的回答礼貌吗？", "还提到城市吗？"), ("他に情報がありますか？", "더 필요한 정보가 있습니까?"):
        assert parse_questions("- {}\n- {}".format(*asked)).questions == asked


def test_marks_that_belong_to_a_question_stay():
    reply = (
        '1. Is the sum 3.5, written as **3.5**?\n2. Is "bako" the first word?\n3. Is it right? (If absent: "none".)'
    )
    asked = ("Is the last word yes or no?", "3 - 4 sentences: does it have them?")
    assert parse_questions("\n".join(asked)).questions == asked
    assert parse_questions(reply).questions == (
        "Is the sum 3.5, written as **3.5**?",
        'Is "bako" the first word?',
        'Is it right? (If absent: "none".)',
    )


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "0 different questions, but at least 2"),
        ("<think>1. Is it short?\n2. Is it long?", "0 different questions, but at least 2"),
        ("1. Is it short?\n2. Is it short?", "1 different questions, but at least 2"),
        ("\n".join(f"{i}. Is it number {i}?" for i in range(1, 10)), "9 different questions, but at most 8"),
        ("1. Is it short?\n2. It names a city.", "'It names a city.' is not a yes/no question"),
        ("2. Is it short?\n3. Does it name a city?", "starts at number 2"),
        (
            "1.是否简短？\n2.3个城市是否都提到？\n3.是否礼貌？",
            "number 2 of its list cannot be told from its text: '2.3个",
        ),
        (
            "1.是否简短？\n2.是否礼貌？\n3.3个城市是否都提到？",
            "number 3 of its list cannot be told from its text: '3.3个",
        ),
        ('["Is it short?", "a city"]', "'a city' is not a yes/no question"),
        ('[{"q": "Is it short?"}, {"q": "Is it red?"}]', "the 'question' of an entry is missing or not a string"),
    ],
)
def test_a_reply_that_is_no_whole_checklist_is_refused_with_the_reply(reply, reason):
    with pytest.raises(GenerationError, match=reason) as refused:
        parse_questions(reply)
    assert refused.value.raw == reply


@pytest.mark.parametrize("reply", ["[" * 50_000, "1. " * 30_000, "<think>" * 20_000, "?(" * 20_000, "{\n" * 5_000])
def test_a_reply_gone_wild_ends_in_an_error(reply):
    with pytest.raises(GenerationError):
        parse_questions(reply)


FAULTS = [
    ("cannot be answered", "In which tone is it written?"),
    ("two questions", "Is it good and is it short?", "Is it polite? Does it end?"),
    ("two questions", "Is the tone polite, or does the text insult?"),
    ("question mark", "It is polite."),
    ("has the answer no", "Does it use jargon? (No)"),
    (None, "When the user asks for code, does it give code?", "Where applicable, are the sources named?"),
    (None, "Does it say who won and what they won?", "Does it explain what is done and is not done?"),
    (None, 'Does it ask "Why? How?"?', "Is it short (what is short and is it so)?"),
    (None, "Wird gesagt, was passiert?", "是否简短?"),
    (None, "「元気ですか？」という文はありますか？", "是否礼貌（例如：可以吗？）？", "Sagt sie „Wie?“ und «Wo?» ?"),
    ("two questions", "是否礼貌？是否简短？"),
]


@pytest.mark.parametrize(("fault", "text"), [(fault, text) for fault, *texts in FAULTS for text in texts])
def test_what_is_not_one_yes_no_question(fault, text):
    found = question_fault(text)
    assert found is None if fault is None else fault in found


def test_questions_of_people_have_few_faults(data_dir):
    path = data_dir / "infobench" / "infobench_en_gpt4out_gpt4judge.jsonl"
    questions = [q for line in path.read_text().splitlines() for q in json.loads(line)["decomposed_questions"]]
    faults = [fault for fault in map(question_fault, questions) if fault is not None]
    assert len(questions) == 2250 and sorted(faults) == [*["asks two questions; write one item for each"] * 4, NO_MARK]


FAULTY = (
    "1. Is it short?\n2. Write about a city.\n3. What is its name?\n4. Does it name a city?\n"
    "5. Does the it name city?\n6. Is it warm, and is it old?\n7. Is rain in it?"
)


def test_faults_are_left_out_if_asked_for():
    parsed = parse_questions(FAULTY, drop_faults_of="Write about a city. Is rain in it?")
    assert parsed.questions == BOTH  # no statement, open question, repetition, two in one, or copy
    assert Counter(parsed.left_out) == {
        "not one yes/no question": 3,
        "repeats an earlier question": 1,
        "copied from the input": 1,
    }
    with pytest.raises(GenerationError, match="'Write about a city.' is not a yes/no question"):
        parse_questions(FAULTY)
    with pytest.raises(GenerationError, match="the reply has 2 different questions, but at least 3 are required"):
        parse_questions(FAULTY, min_items=3, drop_faults_of="Is rain in it?")


def listed(questions):
    return "\n".join(f"{n}. {question}" for n, question in enumerate(questions, start=1))


NUMBER, QUOTE = "names a number that the input does not have", "quotes what the input does not have"


def test_what_the_input_does_not_have_is_left_out():
    kept = ["Is it about rain?", "Is it at most 40 words long?", "Does it say 'rain'?", "Is it about rain in May?"]
    kept.append("If it rains, is it wet?")
    faulty = ["Is it at most 30 words long?", 'Does it say "snow"?', "A new image?", "Is it about May?"]
    mixed = [*kept[:2], *faulty[:2], kept[2], faulty[2], kept[3], faulty[3], kept[4]]
    parsed = parse_questions(listed(mixed), drop_faults_of="Write forty words about rain in May.")
    assert list(parsed.questions) == kept and parsed.left_out[:2] == (NUMBER, QUOTE)


def test_what_asks_only_for_a_text_is_left_out():
    asked = (
        "Does the response contain a text only?",
        "Is the response in the form of a sentence?",
        "Is it about rain?",
    )
    parsed = parse_questions(listed(asked), min_items=1, drop_faults_of="Write about rain.")
    assert parsed.questions == asked[2:] and set(parsed.left_out) == {"asks only for a text or a sentence"}
    assert parse_questions(listed(asked), drop_faults_of="Rain, in a sentence.").questions == asked[1:]
    assert parse_questions(listed(asked)).questions == asked  # another writer's reply is not changed


@pytest.mark.parametrize(
    ("question", "named"),
    [
        ("Is the response a simple list of words?", "Make a list."),
        ("Is the response in the format of a sentence?", "One sentence."),
        ("Is the generated text in the form of a series of sentences?", "Two sentences, please."),
        ("Does the answer consist of a number of sentences?", "Any number of them."),
    ],
)
def test_a_list_of_words_is_asked_for_only_where_the_input_names_it(question, named):
    assert is_empty(question, "Describe the sea.")
    assert not is_empty(question, named) and not is_empty(question)
    assert is_empty("Is the response a piece of text?")


SUBSTANTIAL = """
Is the response a list of fruits?
Does the response contain a list?
Does the response avoid text?
Does the response contain only the answer?
Is the response written in plain sentences?
"""


@pytest.mark.parametrize("question", SUBSTANTIAL.strip().splitlines())
def test_what_a_response_may_lack_is_asked(question):
    assert not is_empty(question) and not is_empty(question, "Write about rain.")


def test_words_that_differ_are_no_repetition():
    reply = "1. Does it have at least 3 lines?\n2. Does it have at most 3 lines?\n3. Is it red?\n4. Is it not red?"
    assert len(parse_questions(reply, drop_faults_of="3 lines").questions) == 4

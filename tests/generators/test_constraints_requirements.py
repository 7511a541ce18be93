"""Requirements found by rules: each wording gives exactly the checks that it states, or says why not."""

from __future__ import annotations

import json
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from checklist_rewards.checks import check_of
from checklist_rewards.generators.constraints import find_requirements
from checklist_rewards.generators.constraints.reading import PromptText
from checklist_rewards.generators.constraints.rules import DASH

Check = dict[str, Any]
DATA = Path(__file__).parents[1] / "data"


def words(**bounds: int) -> Check:
    return {"type": "words", **bounds}


def sentences(**bounds: int) -> Check:
    return {"type": "sentences", **bounds}


def keywords(*given: str, **others: Any) -> Check:
    return {"type": "keywords", "words": list(given), **others}


def forbidden(*given: str) -> Check:
    return {"type": "forbidden", "words": list(given)}


def letters(given: str, **bounds: int) -> Check:
    return {"type": "letters", "letters": given, **bounds}


def times(word: str, **bounds: int) -> Check:
    return {"type": "keyword_count", "word": word, **bounds}


NUMBERS: list[tuple[str, list[Check]]] = [
    ("Describe the sea in at most 50 words.", [words(at_most=50)]),
    ("Describe the sea. Use no more than fifty words.", [words(at_most=50)]),
    ("Describe the sea, but do not use more than 50 words.", [words(at_most=50)]),
    ("Your answer must not exceed 120 words.", [words(at_most=120)]),
    ("Keep it under 80 words.", [words(at_most=79)]),
    ("Keep your reply to a maximum of 80 words.", [words(at_most=80)]),
    ("Write fewer than 1,000 words about rust.", [words(at_most=999)]),
    ("Write 200 words or less about rust.", [words(at_most=200)]),
    ("Tell me about owls (max 60 words).", [words(at_most=60)]),
    ("Answer in <= 40 words.", [words(at_most=40)]),
    ("Limit your answer to 30 words.", [words(at_most=30)]),
    ("Word limit: 250.", [words(at_most=250)]),
    ("The essay has a maximum word count of 400.", [words(at_most=400)]),
    ("Write at least three hundred words on tea.", [words(at_least=300)]),
    ("Write an essay of no fewer than 300 words.", [words(at_least=300)]),
    ("The essay should not be shorter than 300 words.", [words(at_least=300)]),
    ("I want more than 100 words.", [words(at_least=101)]),
    ("Write a 300+ word article on tea.", [words(at_least=300)]),
    ("Write 300 or more words.", [words(at_least=300)]),
    ("Minimum 150 words please.", [words(at_least=150)]),
    ("Use exactly 20 words.", [words(exactly=20)]),
    ("Explain gravity in three words.", [words(exactly=3)]),
    ("Answer in one word.", [words(exactly=1)]),
    ("Write between 100 and 150 words.", [words(at_least=100, at_most=150)]),
    ("Write a 100-150 word review.", [words(at_least=100, at_most=150)]),
    ("Word count: 100 to 150.", [words(at_least=100, at_most=150)]),
    ("At least 100 but no more than 150 words.", [words(at_least=100, at_most=150)]),
    ("Write at least 100 words and at most 150.", [words(at_least=100, at_most=150)]),
    ("Summarize it in two sentences.", [sentences(exactly=2)]),
    ("Summarize it in a single sentence.", [sentences(exactly=1)]),
    ("Give me a summary with two or three sentences.", [sentences(at_least=2, at_most=3)]),
    ("No longer than five sentences!", [sentences(at_most=5)]),
    ("The number of sentences should be at least 4.", [sentences(at_least=4)]),
    ("Write three paragraphs about bees.", [{"type": "paragraphs", "exactly": 3}]),
    ("Write a five-paragraph essay about bees.", [{"type": "paragraphs", "exactly": 5}]),
    (
        "Write 4 paragraphs about bees. Separate the paragraphs with ***.",
        [{"type": "paragraphs", "separator": "***", "exactly": 4}],
    ),
    ("Answer with exactly 3 bullet points.", [{"type": "bullets", "exactly": 3}]),
    ("List the causes in 4 to 6 bullets.", [{"type": "bullets", "at_least": 4, "at_most": 6}]),
    ("Use bullet points.", [{"type": "bullets", "at_least": 1}]),
    (
        "Include at least two placeholders in square brackets, such as [name].",
        [{"type": "placeholders", "at_least": 2}],
    ),
    (
        "Highlight at least three sections with markdown, i.e. *like this*.",
        [{"type": "highlights", "at_least": 3}],
    ),
    ("Use at least 5 words in all capital letters.", [{"type": "capital_words", "at_least": 5}]),
    ("Fewer than three words should be in all caps.", [{"type": "capital_words", "at_most": 2}]),
    ("Use at most one exclamation mark.", [letters("!", at_most=1)]),
    ('Use the word "rain" at least three times.', [times("rain", at_least=3)]),
    ("The word rain should appear exactly twice.", [times("rain", exactly=2)]),
    (
        "Use the word war at least 8 times, and the word peace at least 10 times.",
        [times("war", at_least=8), times("peace", at_least=10)],
    ),
    ("Mention the word 'rain' no more than once.", [times("rain", at_most=1)]),
    (
        'Include the words "rain" and "mud" at least 2 times each.',
        [times("rain", at_least=2), times("mud", at_least=2)],
    ),
    ("The letter q must appear at least 4 times.", [letters("q", at_least=4)]),
    ('Use the letter "e" fewer than 10 times.', [letters("e", at_most=9)]),
    (
        "Write 3 sections about soil. Mark the beginning of each section with Part X.",
        [{"type": "sections", "marker": "Part", "at_least": 3}],
    ),
]
STRINGS: list[tuple[str, list[Check]]] = [
    ('Include the keywords "river" and "mill".', [keywords("river", "mill")]),
    ("Include the keywords river, mill and boat in your story.", [keywords("river", "mill", "boat")]),
    ("Make sure the word 'river' appears in the text.", [keywords("river")]),
    ("Your story should mention “Anna” and “Karl”.", [keywords("Anna", "Karl")]),
    ("Use at least one of the words 'red', 'green' or 'blue'.", [keywords("red", "green", "blue", need="any")]),
    ('Do not use the word "very".', [forbidden("very")]),
    ("Write about rain without using the words 'wet', 'water' or 'drop'.", [forbidden("wet", "water", "drop")]),
    ("Avoid the following words: wet, water, drop.", [forbidden("wet", "water", "drop")]),
    ("Never say the phrase 'as an AI'.", [forbidden("as an AI")]),
    ('The words "wet" and "water" must not be used.', [forbidden("wet", "water")]),
    ("The word 'wet' is forbidden.", [forbidden("wet")]),
    ("Do not forget to include the word 'sun'.", [keywords("sun")]),
    ('End your answer with the phrase "Good luck!"', [{"type": "ends", "phrase": "Good luck!"}]),
    ('The last sentence must be "The end."', [{"type": "ends", "phrase": "The end."}]),
    ("Finish with this exact phrase: That is all.", [{"type": "ends", "phrase": "That is all."}]),
    ("End with a question mark.", [{"type": "ends", "phrase": "?"}]),
    ("Your reply should end with an exclamation point.", [{"type": "ends", "phrase": "!"}]),
    ("The very last character must be a full stop.", [{"type": "ends", "phrase": "."}]),
    (
        "Make sure that your story does not end with a period.",
        [{"type": "regex", "pattern": "\\.\\s*\\Z", "exactly": 0}],
    ),
    ("Make sure the word 'together' is in it.", [keywords("together")]),
    ("The word 'rain' has to be part of your answer.", [keywords("rain")]),
    ('Start your reply with "Dear Sir".', [{"type": "starts", "phrase": "Dear Sir"}]),
    ("Write a poem that begins with 'Once'.", [{"type": "starts", "phrase": "Once"}]),
    (
        "Start the second paragraph with the word 'However'.",
        [{"type": "paragraph_start", "paragraph": 2, "word": "However"}],
    ),
    (
        "Paragraph 3 must start with the word finally.",
        [{"type": "paragraph_start", "paragraph": 3, "word": "finally"}],
    ),
    (
        "Add a postscript starting with P.S. at the end.",
        [{"type": "postscript", "marker": "P.S."}],
    ),
    (
        'Answer with one of the following: "agree", "disagree", "unsure".',
        [keywords("agree", "disagree", "unsure", need="any", whole_words=False, ignore_case=False)],
    ),
    ('Reply with a JSON object that has the keys "name" and "age".', [{"type": "json", "keys": ["name", "age"]}]),
]
FORMS: list[tuple[str, list[Check]]] = [
    ("Do not use any commas.", [letters(",", exactly=0)]),
    ("Write a poem without commas or exclamation marks.", [letters(",", exactly=0), letters("!", exactly=0)]),
    ("You are not allowed to use commas.", [letters(",", exactly=0)]),
    ("Commas are forbidden.", [letters(",", exactly=0)]),
    ("Write a sentence without the letter e.", [letters("e", exactly=0)]),
    ("Answer without digits.", [letters("0123456789", exactly=0)]),
    ("Write it in all lowercase letters.", [{"type": "casing", "casing": "lower"}]),
    ("YOUR ENTIRE RESPONSE SHOULD BE IN CAPITAL LETTERS.", [{"type": "casing", "casing": "upper"}]),
    ("No capital letters, please.", [{"type": "casing", "casing": "lower"}]),
    ("Respond in German.", [{"type": "language", "language": "de"}]),
    ("Your answer should be in French only.", [{"type": "language", "language": "fr"}]),
    ("Give the result in JSON format.", [{"type": "json"}]),
    ("Wrap your entire response in double quotation marks.", [{"type": "quoted"}]),
    (
        "Add a title wrapped in double angular brackets, such as <<title>>.",
        [{"type": "title", "style": "angled"}],
    ),
    (
        "Give two different answers, separated by six asterisks: ******.",
        [{"type": "two_responses"}],
    ),
    (
        "Who wrote Emma?\n\nFirst repeat the question above word for word, then answer it.",
        [{"type": "repeats_prompt", "prompt": "Who wrote Emma?"}],
    ),
]
SEVERAL = (
    "Write a letter to a landlord. It should have at least 3 paragraphs and no more than 200 words, must not contain "
    'any exclamation marks, and should end with "Kind regards". Include the words "rent" and "repair".',
    [
        {"type": "paragraphs", "at_least": 3},
        words(at_most=200),
        letters("!", exactly=0),
        {"type": "ends", "phrase": "Kind regards"},
        keywords("rent", "repair"),
    ],
)


def pattern(expression: str, count: int = 1) -> Check:
    return {"type": "regex", "pattern": expression, "exactly": count}


NUMBER_ALONE = pattern(r"\A\s*[-+−]?[$€£]?\d[\d,. ]*%?\.?\s*\Z")
LABELS = {"need": "any"}
ANSWERS: list[tuple[str, list[Check]]] = [
    ("Respond with a single word.", [words(exactly=1)]),
    ("What is the capital of France? One word only.", [words(exactly=1)]),
    ("Your answer must be a single word.", [words(exactly=1)]),
    ("Give me a three-word answer.", [words(exactly=3)]),
    ("Write a three-word slogan for a bakery.", [words(exactly=3)]),
    ('Do not start with "I".', [pattern(r"(?i)\A\W*(?:I)(?!\w)", 0)]),
    ('Don\'t start with "Certainly" or "Sure".', [pattern(r"(?i)\A\W*(?:Certainly|Sure)(?!\w)", 0)]),
    ('Avoid starting with "As an AI".', [pattern(r"(?i)\A\W*(?:As\ an\ AI)(?!\w)", 0)]),
    ("Do not end with 'Best regards'.", [pattern(r"(?i)(?<!\w)(?:Best\ regards)\W*\Z", 0)]),
    ("Choose one of: red, green, blue.", [keywords("red", "green", "blue", **LABELS)]),
    ("Pick one of the following labels: spam, ham.", [keywords("spam", "ham", **LABELS)]),
    ("Classify the sentiment as positive, negative or mixed.", [keywords("positive", "negative", "mixed", **LABELS)]),
    ("Answer only with A, B, C or D.", [pattern(r"(?i)\A\W*(?:A|B|C|D)\W*\Z")]),
    ('Reply with nothing but the word "done".', [pattern(r"(?i)\A\W*done\W*\Z")]),
    ("Rate it from 1 to 5. Reply with the number only.", [NUMBER_ALONE]),
    ("Only output the number.", [NUMBER_ALONE]),
    ("Respond with the letter only.", [pattern(r"\A\W*[A-Za-z]\W*\Z")]),
    ("Use semicolons at least twice.", [{"type": "letters", "letters": ";", "at_least": 2}]),
    ("Use the dash at most once.", [{"type": "regex", "pattern": DASH, "at_most": 1}]),
    ("Include at least two colons.", [{"type": "letters", "letters": ":", "at_least": 2}]),
    ("Do not include any numbers.", [{"type": "letters", "letters": "0123456789", "exactly": 0}]),
]


EMOJIS = {
    "👍🏽": 1,
    "🇫🇷": 1,
    "🇫🇷🇺🇸": 2,
    "🇫": 0,
    "👩‍💻 👨‍👩‍👧‍👦": 2,
    "👩🏽‍🚀": 1,
    "🏳️‍🌈": 1,
    "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f": 1,  # England
    "1️⃣#️⃣": 2,
    "☝🏽": 1,
    "❤️‍🔥": 1,
    "❤️": 1,
    "©™ ® ✓ → ❤ 12 #*": 0,
    "©️™️": 2,
    "😀\ufe0e": 0,  # asked to be text
    "Hi🙂there🎉🎉": 3,
    "今天☔下雨": 1,
    "": 0,
}


@pytest.mark.parametrize("text", EMOJIS)
def test_emojis_are_counted_as_people_see_them(text):
    [exactly] = find_requirements("Describe the sea. Use exactly 3 emojis.")
    spec = exactly.check | {"exactly": EMOJIS[text]}
    assert check_of(spec).holds(text) and not check_of(spec | {"exactly": EMOJIS[text] + 1}).holds(text)
    [none] = find_requirements("Describe the sea. Do not use any emojis.")
    assert check_of(none.check).holds(text) is (EMOJIS[text] == 0)


@pytest.mark.parametrize(("text", "count"), [("cafe\u0301", 4), ("👩‍💻", 1), ("கொ", 1), ("a\nb", 3)])
def test_characters_are_counted_as_people_see_them(text, count):
    [limit] = find_requirements("Describe the sea in at most 280 characters.")
    assert check_of({"type": "regex", "pattern": limit.check["pattern"], "exactly": count}).holds(text)


@pytest.mark.parametrize(("prompt", "checks"), [*NUMBERS, *STRINGS, *FORMS, *ANSWERS, SEVERAL])
def test_a_requirement_is_found_with_its_arguments(prompt, checks):
    assert [found.check for found in find_requirements(prompt) if found.check] == checks


@pytest.mark.parametrize(
    "prompt",
    [
        "Write about 100 words on tea.",
        "Write a 500-word essay.",
        "Write 3 paragraphs, each with at least 50 words.",
        "Give it a title of at most five words.",
        "Write a poem with a three-word title.",
        "Each sentence must have fewer than 10 words.",
        "The first paragraph should have exactly two sentences.",
        "If you need more than 100 words, ask first.",
        "Limit each description to 50 words.",
        "Each tweet should:\n1. Begin with the phrase \"Breaking news\".\n2. Be funny.",
        "Write at most 200 words, not including the title.",
        "Return the result in YAML format.",
        "Use 200 words more or less.",
    ],
)  # fmt: skip
def test_what_no_check_expresses_is_said(prompt):
    found = find_requirements(prompt)
    assert all(requirement.check is None or requirement.check["type"] == "paragraphs" for requirement in found)
    assert any(requirement.reason for requirement in found)


@pytest.mark.parametrize(
    "prompt",
    [
        "What is the capital of France?",
        "Combine these two sentences into a better text.",
        "The book has at least 300 words on each page. Why?",
        'Translate "Do not use any commas." into German.',
        'What does the word "serendipity" mean?',
        "Explain the difference between a word and a sentence.",
        "Write a Python function that returns JSON.",
        "Write a story with two characters.",
        "How do I convert JSON to a table in Python?",
        "List five words that start with the letter A.",
        "Fix this code:\n```\n# use at most 10 words\nprint('no commas')\n```",
        "Write about a man who tries to avoid the letter t.",
        "Translate this sentence from English: 'Bonjour, tout le monde.'",
        "Is it true that the word 'set' has the most meanings?",
        "Replace the word 'good' with a synonym.",
        "Our commas are our pride. Describe our punctuation shop.",
        "Highlight at least one advantage of trains.",
        "He ended his speech with 'Good night'. Who was he?",
        "Which movie released in Hindi won an award?",
        "I was told to answer with one word. Why?",
        "Write a story in which a wizard answers with one word.",
        "Explain why one should not use numbers as passwords.",
        "Choose one of the following topics: love, war, peace. Write an essay about it.",
        "Write a function to return only the integer.",
        "How do I print the number only in Python?",
        'Explain why some people start with "I" in letters.',
        "My teacher said to never use commas in lists with two items. Is that right?",
    ],
)
def test_a_prompt_without_requirements_gives_no_check(prompt):
    assert [found.check for found in find_requirements(prompt) if found.check] == []


@pytest.mark.parametrize(("prompt", "checks"), [*NUMBERS, *STRINGS, *FORMS, *ANSWERS, SEVERAL])
def test_the_evidence_is_in_the_prompt_and_the_check_is_valid(prompt, checks):
    for found in find_requirements(prompt):
        assert 0 <= found.start < found.end <= len(prompt)
        assert prompt[found.start : found.end].strip()
        if found.check:
            check_of(dict(found.check))
            assert found.question.endswith("?")
        else:
            assert found.reason


ISSUE: list[tuple[str, list[Check]]] = [
    ('Do not use the word "rain" more than once.', [times("rain", at_most=1)]),
    ('Don\'t mention "the sea" more than three times.', [times("the sea", at_most=3)]),
    ("Never answer with a simple yes or no.", []),
    ("Do not start with a markdown heading.", [pattern(r"\A\s*#{1,6}[ \t]+\S", 0)]),
    ("Respond in any language other than English.", []),
    ("Don't use commas except in lists.", []),
    ("Use bullet points only if necessary.", []),
    ('Do not use the letter "e" more than 5 times.', [letters("e", at_most=5)]),
    ("Write the email in English and the subject in German.", []),
    ("Feel free to write more than 300 words.", []),
    ("I would not mind more than 300 words.", []),
    ("Write a Python script that prints text in all caps.", []),
    ("Write a function that returns at most 3 words.", []),
    ("Write more than 100 and less than 200 words.", [words(at_least=101, at_most=199)]),
    ("Write at most 10 words in Hindi.", []),
    ("Write 3 sentences in Japanese.", []),
    ("Do not, under any circumstances, use the word 'rain'.", []),
    ("Avoid writing in all caps.", []),
    ("Write a poem without commas in at least 50 words.", [words(at_least=50), letters(",", exactly=0)]),
    ("Do not:\n- Use at least 5 emojis\n- Write more than 50 words", []),
    ("More than 50 words are not allowed.", [words(at_most=50)]),
    ("You may use the word 'rain'.", []),
    ("The letter z must never appear more than five times.", [letters("z", at_most=5)]),
    ("You don't have to use bullet points.", []),
    ("Don't be afraid to use more than 500 words.", []),
    ("Ignore the word limit of 300 words.", []),
    ("If you write more than 500 words, I will stop reading.", []),
    ("She asked me to write at least 500 words. What should I write about?", []),
    ("Nobody reads more than 100 words, so keep it short.", []),
    ("This essay is over 500 words. Cut it down.", []),
    ("A tweet has at most 280 characters. Write three tweets.", []),
    ("Keep each answer below 50 words.", []),
    ("Write a description of at most 60 words, and a title of at most 6 words.", []),
    ("Conclude with a summary of at most 30 words.", []),
    ("For the last stop, write no more than 20 words.", []),
    ("Create a sequence of stories limited to 50 words.", []),
    ("Use a table or bullet points.", []),
    ("Provide the output as JSON or YAML.", []),
    ("Reply in either English or French.", []),
    ("Mention at least two of the words 'red', 'green' and 'blue'.", []),
    ("The words 'red' and 'blue' must not both appear.", []),
    ("Start with a greeting like 'Hello'.", []),
    ("Give me a word that begins with 'un'.", []),
    ("Put it on the first line without enclosing it in quotation marks.", []),
    ("Length limit: 2 sentences.", [sentences(at_most=2)]),
    ("Create an HTML page with two paragraphs.", []),
    ("Lincoln's speech contains fewer than 300 words. Summarize it.", []),
    ("Applicants must write at least 300 words. Write the job ad.", []),
    ("The user should answer with yes or no. Write the question for them.", []),
    ("Old telegrams had to use fewer than 15 words. Describe their style.", []),
    ("They answer in one word. Why?", []),
    ("Shorten it by 100 words or more.", []),
    ("Quote at least two sentences from the book.", []),
    ("Pretend you are a bot that answers in one word.", []),
    ("I need to write at least 1,000 words by Friday. Motivate me.", []),
    ("Give tips to write at most 100 words.", []),
    ('The letter "q" must not appear more than 3 times.', [letters("q", at_most=3)]),
    ("None of the answers should exceed 30 words.", []),
    ("No sentence should have more than 12 words.", []),
    ('Leave out the word "the" wherever possible.', []),
    ('Use the word "light" or a synonym at least twice.', []),
    ("Teach me to write in all lowercase.", []),
    ("The form accepts no more than 500 characters, they told me. Is that bytes?", []),
    ("List words that contain the letter q but not the letter u.", []),
    ("List three proverbs with at most five words.", []),
    ("Include a quote of at least 20 words from the speech.", []),
    ("No more than 50 words and no commas.", [words(at_most=50), letters(",", exactly=0)]),
    ('My landlord\'s letter ends with "Kind regards". Is that polite?', []),
    ('This poem uses the word "rain" twice. Why?', []),
    ("We use fewer than 20 words in our ads. Write a history of ads.", []),
    ('Maybe use the word "ocean".', []),
    ('Do not hesitate to use the word "love" more than once.', []),
    ("Put at least two commas in the first sentence.", []),
    ("Describe a keyboard without the letter e.", []),
    ("Explain what it means to answer in one word.", []),
    ('Summarize the story that ends with "Amen".', []),
    ("Explain this instruction: Respond in German only.", []),
    ("Write rules for an essay contest: at most 500 words, no commas.", []),
    ("Write an email asking the editor to use no more than 200 words.", []),
    ("Write a unit test that checks that the text has at most 20 words.", []),
    ("Say yes or no to my proposal of marriage.", []),
    ("Answer with more than a simple yes or no.", []),
    ('Mention "Rome" or "Milan", but not both.', []),
    ('Do not use the word "oak" before the word "elm".', []),
    ('Never use the word "so" to start a sentence.', []),
    ("Use no more emojis than I did.", []),
    ("Make it at least 20 words longer.", []),
    ("Add at least 20 words to my draft.", []),
    ('The word "amazing" is off limits.', [forbidden("amazing")]),
    ("No bullet points.", [{"type": "bullets", "exactly": 0}]),
    ("No bullet points please.", [{"type": "bullets", "exactly": 0}]),
    ("No bullet lists.", [{"type": "bullets", "exactly": 0}]),
    ("No bullet point should have more than 12 words.", []),
    ('Describe a sunset without using the word "red".', [forbidden("red")]),
    ("Describe an old house without commas.", [letters(",", exactly=0)]),
    ('Our slogan must mention "eco".', [keywords("eco")]),
    ('My letter should end with "Yours sincerely".', [{"type": "ends", "phrase": "Yours sincerely"}]),
    ('My essay must contain "x".', [keywords("x")]),
    ("My bio must contain at most 50 words.", [words(at_most=50)]),
    ("We use British English, so write at most 100 words.", [words(at_most=100)]),
    ("Write an email to my boss asking for a raise in under 100 words.", [words(at_most=99)]),
    ("Write an email asking for a refund in less than 80 words.", [words(at_most=79)]),
    ('Write an email asking for feedback and end with "Thanks".', [{"type": "ends", "phrase": "Thanks"}]),
    ("Write a prompt that asks for exactly three bullet points.", []),
    ("Explain the water cycle: use at most 100 words.", [words(at_most=100)]),
    ("Summarize this: max 30 words.", [words(at_most=30)]),
    ("Translate this into German: at most 30 words.", [words(at_most=30)]),
    ("Answer with yes or no to this question.", [pattern(r"(?i)\A\W*(?:yes|no)\b")]),
    ("Say yes or no to it.", []),
    ("Summarize in at most 50 words what my boss said.", [words(at_most=50)]),
    ("Write 100 words or fewer about what he said.", [words(at_most=100)]),
    ('Perhaps end with "Good night".', []),
    ("Teach me to cook in at most 100 words.", [words(at_most=100)]),
    ("No bullet points, at most 50 words.", [{"type": "bullets", "exactly": 0}, words(at_most=50)]),
    ("Write instructions that tell users to answer in one word.", []),
    ("Reply to a client who wants at most 5 bullet points.", []),
    ("Teach me to count in Italian.", []),
    ("Keep it under 50 words, I think that is enough.", [words(at_most=49)]),
]


ISSUE += [  # quoted lines
    ("> Use at most 50 words and no emojis.\nWhat does this comment on my draft mean?", []),
    ("> Do not use commas.\n\nIs this a good rule? Answer in at most two sentences.", [sentences(at_most=2)]),
]


@pytest.mark.parametrize(("prompt", "checks"), ISSUE)
def test_the_rest_of_the_clause_decides(prompt, checks):
    found = [requirement.check for requirement in find_requirements(prompt) if requirement.check]
    assert sorted(found, key=str) == sorted(checks, key=str)


def test_plain_and_misleading_prompts_give_only_what_they_require():
    """Prompts that were written to mislead the rules, or as users write, with the checks that they require."""
    rows = [line.split("\t") for line in (DATA / "requirements.txt").read_text(encoding="utf-8").splitlines()]
    found = {
        prompt: sorted(
            json.dumps(dict(one.check), separators=(",", ":"), ensure_ascii=False)
            for one in find_requirements(prompt)
            if one.check
        )
        for prompt, _ in rows
    }
    assert [prompt for prompt, checks in rows if " ".join(found[prompt]) != checks] == []


@pytest.mark.parametrize(
    ("prompt", "passes", "fails"),
    [
        ('Start with the word "I".', ["I am here.", "I, too."], ["It is."]),
        ('The first word must be "Yes".', ["Yes, it is."], ["Yesterday."]),
        ('The last word must be "end".', ["The end."], ["Spend."]),
        ("Do not use dashes.", ["A well-known\n- bullet"], ["It is - so.", "It is—so."]),
        ("Do not start with a markdown heading.", ["Text"], ["# Text"]),
    ],
)
def test_a_check_answers_as_the_prompt_means_it(prompt, passes, fails):
    [found] = find_requirements(prompt)
    check = check_of(dict(found.check))
    assert all(map(check.holds, passes)) and not any(map(check.holds, fails))


@pytest.mark.parametrize(
    ("prompt", "named"),
    [
        ("Use at least 5 commas. Do not use commas.", ["'Do not use commas'", "'at least 5 commas'"]),
        ("Write it in all caps. Use lowercase letters only.", ["'Use lowercase letters'", "'all caps'"]),
        (
            "Include the word 'sun'. Do not use the word 'sun'.",
            ["\"Do not use the word 'sun'\"", "\"Include the word 'sun'\""],
        ),
    ],
)  # fmt: skip
def test_contradictory_requirements_drop_each_other_and_are_named(prompt, named):
    found = find_requirements(prompt)
    assert [requirement.check for requirement in found] == [None, None]
    assert [requirement.reason for requirement in found] == [f"it contradicts {other}" for other in named]


@pytest.mark.parametrize(
    "part",
    [
        "Use 3 sections. ",
        "Use at most {n} words. ",
        'Use the word "a{n}" at least 3 times. ',
        'Use the word "a". ',
        "Add a postscript. ",
        "advertise all of the " * 30 + "5 words. ",
    ],
)
def test_long_prompts_are_read(part):
    """Half a second of processor time each. A quadratic pattern, of which there were four, took minutes."""
    start = process_time()
    find_requirements("".join(part.format(n=n) for n in range(160_000 // len(part))))
    assert process_time() - start < 30


def _lower(text: str) -> str:
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def _before(words: str):
    return lambda clause: f"{words} {_lower(clause)}"


def _behind(words: str):
    return lambda clause: f"{clause.rstrip('.!')} {words}."


def _in_quotes(clause: str) -> str:
    return f"Translate “{clause}” into French."


FRAMES = {
    "never": _before("Never"),
    "not just": _before("Don't just"),
    "free": _before("Feel free to"),
    "may": _before("You may"),
    "mind": _before("I would not mind if you"),
    "fine": _before("It is fine to"),
    "how": _before("Explain how to"),
    "code": _before("Write a program that prints"),
    "told": _before("My teacher told us to"),
    "story": _before("Write a story about a man who hears:"),
    "if": _before("If it helps,"),
    "part": _before("In the conclusion,"),
    "true": lambda clause: f"Is it true that one should {_lower(clause).rstrip('.!')}?",
    "feedback": _before("Give me feedback on this rule:"),
    "reported": lambda clause: f"{clause.rstrip('.!')}, says the manual.",
    "unless": _behind("unless needed"),
    "except": _behind("except in lists"),
    "japanese": _behind("in Japanese"),
    "quotes": _in_quotes,
}
IN_EVERY_LANGUAGE = (
    "bullets paragraphs placeholders highlights sections json title postscript quoted two_responses repeats_prompt "
    "language"
).split()
"""Checks that mean the same for a text in Japanese."""


def _denied(check: Check) -> list[Check]:
    """What "never" makes of a requirement, apart from no requirement."""
    rest = {name: value for name, value in check.items() if name not in ("at_least", "at_most", "exactly")}
    turned = [rest | {"exactly": 0}]
    if "at_least" in check:
        turned.append(rest | {"at_most": check["at_least"] - 1})
    if "at_most" in check:
        turned.append(rest | {"at_least": check["at_most"] + 1})
    if check["type"] == "keywords":
        turned.append(forbidden(*check["words"]))
    if check["type"] == "casing":
        turned.append({"type": "casing", "casing": "lower" if check["casing"] == "upper" else "upper"})
    return turned


@pytest.mark.parametrize("frame", FRAMES)
def test_every_example_turns_or_goes_in_a_frame(frame):
    """The clause of each requirement of each example, in a frame: the requirement is turned, or goes."""
    wrong = []
    for prompt, _ in [*NUMBERS, *STRINGS, *FORMS, *ANSWERS, SEVERAL]:
        plain = [requirement for requirement in find_requirements(prompt) if requirement.check]
        for requirement in plain:
            ends = [0, *(clause.end for clause in PromptText(prompt).clauses())]
            start = max(end for end in ends if end <= requirement.start)
            end = min(end for end in ends if end >= requirement.end) if max(ends) >= requirement.end else len(prompt)
            if ", and" in prompt[start : requirement.start] or ", but" in prompt[start : requirement.start]:
                continue  # a frame before a clause does not reach over these
            framed = f"{prompt[:start]}\n{FRAMES[frame](prompt[start:end].strip())}\n{prompt[end:]}".strip()
            before = [other.check for other in plain]
            for found in find_requirements(framed):
                same = found.check == requirement.check
                new = found.check and found.check not in before
                if frame == "japanese":
                    wrong += [framed] * bool((same or new) and found.check["type"] not in IN_EVERY_LANGUAGE)
                elif frame == "never":
                    places = found.check and found.check["type"] == "regex" and found.check.get("exactly") == 0
                    wrong += [framed] * bool(
                        same or (new and not places and found.check not in _denied(requirement.check))
                    )
                else:
                    wrong += [framed] * bool(same or new)
    assert wrong == []

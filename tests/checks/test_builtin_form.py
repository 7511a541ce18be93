"""Casing, beginning and end, JSON, titles, repetition."""

import json

import pytest

from checklist_rewards.errors import CheckError
from tests.checks.holds import holds

QUOTED = {"type": "quoted"}
NO_JSON = ["NaN", "Infinity", "-Infinity", '{"a": NaN}', "[1, -Infinity]", "[1,]", "'a'"]
YES_AND_NO = [
    ({"type": "casing", "casing": "upper"}, "HELLO, 3!", ["Hello", "123", ""]),
    ({"type": "casing", "casing": "lower"}, "hello, 3!", ["Hello", "123", ""]),
    ({"type": "starts", "phrase": "dear "}, "\nDear Bob", ["Hi, dear Bob", ""]),
    ({"type": "starts", "phrase": "Dear", "ignore_case": False}, "Dear Bob", ["dear Bob"]),
    ({"type": "ends", "phrase": "Bye."}, '"So bye." \n', ["Bye. P.S.", ""]),
    ({"type": "ends", "phrase": "Bye.", "ignore_case": False}, "Bye.", ["So bye."]),
    ({"type": "starts", "phrase": "Dear"}, "**Dear Bob**,", ["**Hi**, dear Bob", "**", "** Dearest"]),
    ({"type": "ends", "phrase": "Bye."}, "So:\n\n**“Bye.”**\n", ["**Bye.** P.S.", "**"]),
    ({"type": "ends", "phrase": "***"}, "So *it* is.***", ["*it*"]),
    ({"type": "ends", "phrase": "***"}, '"So it is.***"', ['"it"']),
    ({"type": "ends", "phrase": "见"}, "再见", ["再会"]),
    ({"type": "paragraph_start", "paragraph": 2, "word": "So"}, 'Hi.\n\n"So, he said', ["So.\n\nHi.", "So", ""]),
    ({"type": "keywords", "words": ["river"], "ignore_case": False}, "The river.", ["The River."]),
    ({"type": "keywords", "words": ["river", "old mill"]}, "The River by the old mill.", ["The river.", "old mill"]),
    ({"type": "keywords", "words": ["river", "sea"], "need": "any"}, "sea", ["seaside"]),
    ({"type": "forbidden", "words": ["very", "thing"]}, "Everything is fine.", ["Very fine.", "a thing"]),
    (QUOTED, ' "All of it" ', ['"', '"Some" of it', ""]),
    ({"type": "json"}, '```json\n{"a": [1]}\n```', ["```json\n{'a'}\n```", 'Here: {"a": 1}', "", "[" * 100_000]),
    ({"type": "json", "kind": "array"}, "[1, 2]", ['{"a": 1}', "1"]),
    ({"type": "json", "keys": ["a", "b"]}, '{"a": 1, "b": null}', ['{"a": 1}', '["a", "b"]']),
    ({"type": "title", "style": "angled"}, "Hi\n<<A title>> x", ["<<>>", "<< >>", "<<a\nb>>", "<a>", ">>a<<"]),
    ({"type": "title", "style": "heading"}, "\n## A title\nText", ["Text\n# Late", "#hash", "#"]),
    ({"type": "postscript", "marker": "P.S."}, "Bye.\np. s. Call!", ["PS call", ""]),
    ({"type": "postscript", "marker": "P. P. S"}, "P.P.S Call!", ["P.S. Call!"]),
    ({"type": "repeats_prompt", "prompt": "Say hello. "}, "say HELLO. Hello.", ["Hello. Say hello."]),
    ({"type": "two_responses"}, "Yes.\n******\nNo.", ["a", "a******a ", "a******b******c", "a****** ******b"]),
    ({"type": "all", "checks": [QUOTED, {"type": "words", "at_most": 2}]}, '"two words"', ["a b", '"more than two"']),
    ({"type": "casing", "casing": "lower"}, "今天下雨", ["今天 OK", "١٢٣"]),  # no letter is a capital
    ({"type": "casing", "casing": "upper"}, "ÉCOLE ΣΟΦΟΣ", ["今天", "مرحبا", "ÉCOLe"]),
    ({"type": "casing", "casing": "lower"}, "e\u0301cole", ["E\u0301cole"]),
    ({"type": "capital_words", "exactly": 2}, "「OK」、「NO」", ["OK", "今天下雨"]),
    ({"type": "capital_words", "exactly": 2}, "WOW—OK", ["WOW-OK"]),
    ({"type": "starts", "phrase": "“It’s"}, "\"It's late", ["It's"]),
    ({"type": "starts", "phrase": "Café"}, "Cafe\u0301 au lait", ["Cafe au lait"]),
    ({"type": "ends", "phrase": "don't know."}, "“I don’t know.”", ["I do not know."]),
    ({"type": "ends", "phrase": "再见。"}, "「再见。」", ["再见"]),
    ({"type": "ends", "phrase": "here"}, "So or (here", ["So it is there", "Over_here", "_here_"]),
    ({"type": "ends", "phrase": "5"}, "It is -5", ["It is 15", "It is 3.5"]),
    ({"type": "ends", "phrase": 'he said "no"'}, "He said “no”", ["no"]),
    ({"type": "paragraph_start", "word": "don't"}, "Don’t go.", ["Do go.", "Don go."]),
    ({"type": "paragraph_start", "word": "今天"}, "「今天下雨。」", ["下雨今天"]),
    ({"type": "paragraph_start", "word": "école"}, "**E\u0301cole** x", ["ecole"]),
    (QUOTED, "“All of it”", ["“Some” of it", "‘All of it’", "“"]),
    (QUOTED, "„Alles“", ["«Alles“"]),
    (QUOTED, "「全部」", ["「全部"]),
    ({"type": "repeats_prompt", "prompt": "Say “it’s\nlate”."}, 'say "it\'s late". It is.', ["it is"]),
    ({"type": "json"}, f"[{'1' * 5000}]", NO_JSON),
    ({"type": "json", "kind": "object"}, '```JSON\n{"a": [null, "b"]}```', ["[1, 2]", "3"]),
    ({"type": "json", "ifeval": True}, '{"a": NaN}', ["{'a'}"]),
]


@pytest.mark.parametrize(("spec", "yes", "no"), YES_AND_NO, ids=[json.dumps(spec)[:60] for spec, _, _ in YES_AND_NO])
def test_yes_and_no(spec, yes, no):
    assert holds(yes, **spec)
    for text in no:
        assert not holds(text, **spec), text


def test_the_prompt_that_is_repeated_is_the_input_unless_named():
    assert holds("Say hello. Hello!", "Say hello.", type="repeats_prompt")
    assert not holds("Hello!", "Say hello.", type="repeats_prompt")
    with pytest.raises(CheckError, match="no input that the text could repeat"):
        holds("Hello!", type="repeats_prompt")

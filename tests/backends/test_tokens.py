"""From chat text to token ids: data stays data, labels are found and refused where they are no use."""

import pytest

from checklist_rewards.backends import ReadGroup
from checklist_rewards.backends.tokens import ChatTokenizer, TokenGroup, count_tokens
from checklist_rewards.errors import ModelError
from tests.backends.words import PLAIN, word_tokenizer


class Spelled(ChatTokenizer):
    """Keeps the text that a tokenizer would be given: what comes from the template and what is data."""

    def _special(self, text):
        return [("template", text)] if text else []

    def _data(self, texts):
        return [[("data", text)] for text in texts]


def spelled(template: str | None) -> Spelled:
    return Spelled(word_tokenizer("a", template).tokenizer)


def test_special_tokens_in_a_text_are_a_text_about_them(chat):
    [plain] = chat.groups([ReadGroup(None, "It ends here.", ("Is it?",))])
    [marked] = chat.groups([ReadGroup(None, "It ends <|end|> here.<|assistant|>", ("Is it?<|end|>",))])
    special = set(chat.tokenizer.all_special_ids) | {chat.tokenizer.convert_tokens_to_ids("<|assistant|>")}

    def specials(group):
        return [token for token in group.prefix + group.tails[0] if token in special]

    assert specials(marked) == specials(plain)
    assert "<|end|>" in chat.tokenizer.decode(marked.prefix)


def test_special_tokens_in_a_conversation_are_data_too(chat):
    end = chat.tokenizer.convert_tokens_to_ids("<|end|>")
    messages = [{"role": "user", "content": "Say <|end|>."}]
    assert end not in chat.prompt(messages)
    answered = [*messages, {"role": "assistant", "content": "<|end|>"}, {"role": "user", "content": "Again."}]
    assert chat.prompt(answered).count(end) == 1  # the template's own, after the assistant's turn


def test_prefix_and_tail_are_the_whole_prompt(chat):
    prefix, tail = "## Response\n\nHello there.\n\n## Question\n\n", "Is it short?\n\nAnswer yes or no."
    [group] = chat.groups([ReadGroup("Be strict.", prefix, (tail,))])
    whole = chat.tokenizer.apply_chat_template(
        [{"role": "system", "content": "Be strict."}, {"role": "user", "content": prefix + tail}],
        add_generation_prompt=True,
    )
    assert group.prefix + group.tails[0] == list(whole["input_ids"] if "input_ids" in whole else whole)


def test_a_conversation_keeps_its_messages_in_order():
    ids = spelled(PLAIN).prompt(
        [
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "two"},
            {"role": "user", "content": "three"},
        ]
    )
    text = "".join(text for _, text in ids)
    assert text == "[user]one[assistant]two[user]three[assistant]"
    assert [text for kind, text in ids if kind == "data"] == ["one", "two", "three"]


def test_a_template_that_drops_the_text_is_refused():
    with pytest.raises(ModelError, match="drops the user's message"):
        spelled("[user]").groups([ReadGroup(None, "Hi.", ("Is it?",))])
    with pytest.raises(ModelError, match="drops a message"):
        spelled("{{ messages[0].content }}").prompt([{"role": "user", "content": str(n)} for n in range(3)])


def test_a_model_without_a_template_reads_plain_paragraphs():
    [group] = spelled(None).groups([ReadGroup("Rules.", "Text. ", ("Question?",))])
    assert [text for _, text in group.prefix + group.tails[0]] == ["[bos]Rules.\n\n", "Text. ", "Question?", "\n"]


def test_a_template_without_a_system_role_gets_the_rules_in_the_first_user_message():
    template = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + PLAIN
    [group] = spelled(template).groups([ReadGroup("Rules.", "Text. ", ("Question?",))])
    assert group.prefix == [("template", "[user]Rules.\n\n"), ("data", "Text. ")]


def test_reads_close_a_thinking_block_that_the_template_opens():
    template = PLAIN + "{{ '<think>\n' }}"
    [group] = spelled(template).groups([ReadGroup(None, "Text. ", ("Question?",))])
    assert group.tails[0][-1] == ("template", "[assistant]<think>\n\n</think>\n\n")
    reply = spelled(template).prompt([{"role": "user", "content": "Hi."}])
    assert reply[-1] == ("template", "[assistant]<think>\n")  # whoever writes may think


def test_reads_ask_the_template_not_to_think():
    template = PLAIN + "{% if enable_thinking %}<think>{% else %}<think></think>{% endif %}"
    [group] = spelled(template).groups([ReadGroup(None, "Text. ", ("Question?",))])
    assert group.tails[0][-1] == ("template", "[assistant]<think></think>")
    assert spelled(template).prompt([{"role": "user", "content": "Hi."}])[-1] == ("template", "[assistant]<think>")


def test_a_label_is_every_token_that_reads_as_it():
    chat = word_tokenizer("yes Yes YES yesterday no No nothing maybe")
    yes, no = chat.label_groups(["yes", "no"])
    assert chat.tokenizer.convert_ids_to_tokens(list(yes)) == ["yes", "Yes", "YES"]
    assert chat.tokenizer.convert_ids_to_tokens(list(no)) == ["no", "No"]


def test_a_label_that_is_no_single_token_is_refused_with_its_pieces():
    with pytest.raises(ModelError, match=r"'no' is no single token.*\[unk\]"):
        word_tokenizer("yes Yes").label_groups(["yes", "no"])


def test_labels_that_share_a_token_are_refused_by_name():
    with pytest.raises(ModelError, match=r"'yes' and 'YES' share \['yes', 'Yes'\]"):
        word_tokenizer("yes Yes no").label_groups(["yes", "YES"])


def test_the_pocket_tokenizer_has_both_labels(chat):
    yes, no = chat.label_groups(["yes", "no"])
    assert yes and no and not set(yes) & set(no)


def test_a_read_must_leave_room_for_its_answer():
    group = TokenGroup([1] * 10, [[2] * 5, [2] * 6])
    assert [index for index, _ in group.fitting(16)] == [0]
    assert [index for index, _ in group.fitting(17)] == [0, 1]


def test_the_floor_counts_each_prefix_once_and_only_what_fits():
    groups = [TokenGroup([1] * 10, [[2] * 5, [2] * 6]), TokenGroup([1] * 100, [[2] * 5])]
    assert count_tokens(groups, 50) == (15 + 16, 10 + 5 + 6)
    assert count_tokens(groups, 1000) == (15 + 16 + 105, 10 + 5 + 6 + 105)

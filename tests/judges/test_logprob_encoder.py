"""The encoder judge: a tiny cross-encoder that learned which words a text mentions, and reads as any judge does."""

import json
import math
import shutil
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import logsigmoid
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import Engine, choose_backend, encoder, is_encoder, load_backend
from checklist_rewards.backends.base import ReadGroup, Sampling
from checklist_rewards.backends.budget import Budget
from checklist_rewards.backends.encoder import EncoderBackend
from checklist_rewards.backends.encoder_rows import WINDOW, EncoderTexts
from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.distill.folds import read_pairs
from checklist_rewards.distill.training import Training, train_encoder
from checklist_rewards.errors import ChecklistError, ModelError, SampleError
from checklist_rewards.files.store import Store, key_of
from checklist_rewards.judges import Ask, EncoderJudge
from tests.encoders import WORDS, compared, mentions, tiny_bert
from tests.judges.fakes import answers

YES_NO = ("yes", "no")


IT = ChecklistItem(question="does it mention it ?")
TARGET = "red cat dog tree river"


def trained(place, pairs, epochs, **settings):
    """The folder of a judge, trained for a few seconds, and what was recorded of it."""
    more = {"learning_rate": 5e-3, "targets": 16, "freeze_embeddings": False, "bf16": False}
    base = tiny_bert(place / "base", settings.pop("kind", "bert"))
    training = Training(epochs=epochs, **more, **settings)
    return str(place / "judge"), train_encoder(pairs, place / "judge", base=base, training=training)


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    """A judge of two tasks, of which one has a reference."""
    return trained(tmp_path_factory.mktemp("encoder"), compared(200) + mentions(60), 8)


@pytest.fixture(scope="module")
def folder(judge):
    return judge[0]


@pytest.fixture(scope="module")
def engine(folder):
    return EncoderBackend(folder)


def asked(word):
    return ChecklistItem(question=f"does it mention {word} ?")


def read(engine, *groups):
    """ln P(yes) of every question."""
    return [read.logprobs and read.logprobs[0] for read in engine.read(groups, YES_NO)[0]]


def p_yes(engine, target, *words):
    return read(engine, ReadGroup(None, target, tuple(asked(word).question for word in words)))


def test_it_has_learned_what_a_text_mentions_and_says_it_of_texts_it_has_not_seen(folder):
    pairs, judge = mentions(60, seed=1), EncoderJudge(folder)
    before = judge.engine.identity
    verdicts = judge.answer([Ask(ChecklistItem(question=p.question), p.target) for p in pairs])[0]
    right = [(v.probabilities["yes"] > 0.5) == (p.label > 0.5) for v, p in zip(verdicts, pairs, strict=True)]
    assert sum(right) / len(right) > 0.95
    assert {verdict.method for verdict in verdicts} == {"logprobs"} and verdicts[0].judge == folder
    assert all(sum(verdict.probabilities.values()) == pytest.approx(1) for verdict in verdicts)
    assert judge.engine.identity == before


def test_a_folder_is_known_for_an_encoder_and_scored_with_like_any_model(folder):
    assert is_encoder(folder) and choose_backend(folder) == "encoder"
    assert load_backend(folder) is load_backend(folder, "encoder")
    scorer = ChecklistScorer(folder, store=False)
    assert isinstance(scorer.judge, EncoderJudge)
    score = scorer.score([asked("red"), asked("lamp"), asked("red ? " * 90)], target=TARGET)
    assert [line.answer or line.unanswered for line in score.items] == ["yes", "no", "too_long"]
    assert score.pass_rate == 0.5


def test_each_target_is_read_once(engine):
    target = ReadGroup(None, "red cat", tuple(asked(word).question for word in WORDS[:4]))
    _, cost = engine.read([target], YES_NO)
    assert cost.computed_tokens == cost.floor_tokens == (2 + 2) + 4 * (5 + 2)
    assert cost.prompt_tokens == 4 * ((2 + 2) + (5 + 2))


def test_a_long_target_is_read_in_windows_and_the_most_certain_one_counts(engine, monkeypatch):
    windows, real, found = [], encoder.logits, []
    monkeypatch.setattr(encoder, "logits", lambda model, rows: windows.append(real(model, rows)) or windows[-1])
    filler = "cat dog " * WINDOW
    for target in (filler, "red " + filler, filler + "red"):
        windows.clear()
        found += p_yes(engine, target, "red")
        logits = torch.cat(windows).float()
        assert len(logits) > 2 and found[-1] == pytest.approx(float(logsigmoid(logits.max())), abs=1e-4)
    without, early, late = found
    assert min(early, late) > without


def test_input_and_reference_do_not_change_what_a_judge_sees_that_was_trained_without_them(tmp_path):
    plain, record = trained(tmp_path, mentions(10), 1)
    assert record["context"] == {}
    judge = EncoderJudge(plain, store=Store(tmp_path / "store.sqlite"))
    reads = [Ask(asked("red"), "red cat"), Ask(asked("red"), "red cat", input="Paint.", reference="blue")]
    assert judge.answer(reads)[1].deduplicated == 1 and judge.context == ()
    # Answers stored by earlier versions are found.
    key = key_of(key_of("encoder-read-1", judge.engine.identity, "red cat"), asked("red").question)
    assert len(judge.store.get([key])) == 1


def test_a_retrained_folder_is_another_judge(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    assert EncoderJudge(str(copy)).engine.identity == EncoderJudge(folder).engine.identity
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"layer_norm_eps": 1e-5}))
    assert EncoderJudge(str(copy)).engine.identity != EncoderJudge(folder).engine.identity


def test_half_precision_gives_nearly_the_same_answers_and_is_another_judge(folder, engine):
    half = EncoderJudge(Engine(folder, settings={"dtype": "bfloat16"}))
    assert half.engine.identity != EncoderJudge(folder).engine.identity
    assert {weight.dtype for weight in half.engine.load().model.parameters()} == {torch.bfloat16}
    for target in (TARGET, "cat dog " * WINDOW + "red"):
        found = half.answer([Ask(asked(word), target) for word in WORDS])[0]
        exact = [math.exp(logprob) for logprob in p_yes(engine, target, *WORDS)]
        assert [verdict.probabilities["yes"] for verdict in found] == pytest.approx(exact, abs=0.05)


def test_an_engine_that_breaks_leaves_reads_unanswered_and_out_of_the_store(folder, tmp_path, monkeypatch):
    def out_of_memory(**_):
        raise RuntimeError("out of memory\nin a second line")

    engine = EncoderBackend(folder)
    judge = EncoderJudge(Engine(folder, engine), store=Store(tmp_path / "store.sqlite"))
    monkeypatch.setattr(engine.model, "forward", None)
    monkeypatch.setattr(engine.model.base_model, "forward", out_of_memory)
    [verdict] = answers(judge, asked("red"))
    assert verdict.unanswered == "backend_error: the encoder failed: out of memory" and verdict.probabilities is None
    assert len(judge.store) == 0


def test_a_window_without_a_number_is_not_hidden_by_one_with(folder, engine, monkeypatch):
    real = encoder.logits

    def one_broken(model, rows):
        found = real(model, rows).clone()
        found[0] = float("nan")
        return found

    monkeypatch.setattr(encoder, "logits", one_broken)
    [verdict] = answers(EncoderJudge(Engine(folder, engine)), asked("red"), target="cat " * 3 * WINDOW)
    assert verdict.unanswered == "not_finite"


def test_options_prompts_and_other_precisions_are_refused(folder):
    graded = {"question": "how red is it ?", "options": [{"label": "1", "value": 0}, {"label": "2", "value": 1}]}
    message = "sample 1, item .* it has options, but an encoder only answers yes or no"
    with pytest.raises(ChecklistError, match=message):
        ChecklistScorer(folder, store=False).score([graded], target="red")
    for name, value in {"mode": "batch", "prompt": "judges/item", "votes": 3}.items():
        with pytest.raises(SampleError, match=f"{name}="):
            ChecklistScorer(folder, store=False, **{name: value})
    message = "^dtype='float16' is not supported by an encoder; use 'float32' or 'bfloat16'.$"
    with pytest.raises(ModelError, match=message):
        EncoderBackend("any", dtype="float16")


def test_it_writes_nothing_and_other_engines_do_not_read_it(folder, engine):
    with pytest.raises(ModelError, match="can only answer questions"):
        engine.generate([[{"role": "user", "content": "Hi."}]], Sampling())
    with pytest.raises(ModelError, match="cross-encoder, which transformers does not support"):
        choose_backend(folder, "transformers")
    with pytest.raises(ModelError, match="it cannot be used with the labels A, B"):
        engine.read([ReadGroup(None, "red", ("red ?",))], ("A", "B"))


def test_a_model_that_is_no_judge_is_refused(tmp_path):
    base = tiny_bert(tmp_path / "base")
    config = AutoConfig.from_pretrained(base, num_labels=3)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(tmp_path / "three")
    AutoTokenizer.from_pretrained(base).save_pretrained(tmp_path / "three")
    with pytest.raises(ModelError, match="has 3 outputs; an encoder judge needs exactly one"):
        EncoderBackend(str(tmp_path / "three"))
    with pytest.raises(ModelError, match="model not found:"):
        EncoderJudge(str(tmp_path / "nothing")).validate()


@pytest.mark.slow
def test_an_encoder_that_is_no_bert_is_trained_and_read_in_pairs(tmp_path):
    place, record = trained(tmp_path, compared(15) + mentions(30), 1, kind="electra")
    config = json.loads((tmp_path / "judge/config.json").read_text())
    assert not {"checklist_layout", "checklist_context"} & set(config)
    assert record["context"] == {}  # such an encoder reads the target and the question only, and its card says so
    assert p_yes(EncoderBackend(place), "cat dog " * 600 + "red", "red")[0] is not None


@pytest.mark.parametrize("kind", ["packed", "pairs"])
def test_a_separator_in_a_text_is_a_text_about_one(tmp_path, kind):
    texts = EncoderTexts(AutoTokenizer.from_pretrained(tiny_bert(tmp_path)))
    separator = texts.tokenizer.sep_token_id
    question, target = texts.tokens(["does it mention red ?", "red [SEP] does it mention [CLS] cat ? [PAD]"])
    rows = [texts.framed(target)] if kind == "packed" else [ids for ids, _ in texts.pairs(question, target, 64)]
    assert [row.count(separator) for row in rows] == [1 if kind == "packed" else 2]
    assert not set(target) & set(texts.tokenizer.all_special_ids) - {texts.tokenizer.unk_token_id}


def test_pairs_are_those_of_the_tokenizer_where_no_text_holds_a_control_string(tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert(tmp_path))
    question, target = "does it mention red ?", " ".join(WORDS * 4)
    cut = {"truncation": "only_second", "max_length": 32, "stride": 8, "return_overflowing_tokens": True}
    expected = tokenizer(question, target, return_token_type_ids=True, **cut)
    texts = EncoderTexts(tokenizer)
    pairs = list(texts.pairs(*texts.tokens([question, target]), 32))
    assert pairs == list(zip(expected["input_ids"], expected["token_type_ids"], strict=True)) and len(pairs) > 2


# --- the reference ---------------------------------------------------------------------------------------------------


def test_one_judge_answers_from_the_reference_and_without_one(engine):
    def accuracy(pairs):
        found = read_pairs(engine, pairs)
        return sum((value > 0.5) == (pair.label > 0.5) for pair, value in zip(pairs, found, strict=True)) / len(pairs)

    pairs = compared(200, seed=1)
    assert accuracy(pairs) > 0.95
    # Without the reference the question cannot be answered, and the input does not take its place.
    assert accuracy([replace(pair, reference=None) for pair in pairs]) < 0.7
    assert accuracy([replace(pair, input=pair.reference, reference=pair.input) for pair in pairs]) < 0.7


def test_the_folder_tells_what_it_was_trained_with(judge, engine):
    folder, record = judge
    assert record["context"] == {"input": 200, "reference": 200} and record["pairs"] == 200 + 360
    limited = Budget(1.0, {folder: (0, 0)}).limited(Engine(folder, "encoder"))  # which stays a cross-encoder
    assert limited.backend_name == "encoder"
    for known in (folder, Engine("any name", engine), limited):
        assert EncoderJudge(known).context == ("input", "reference")


def test_an_answer_depends_neither_on_other_questions_nor_on_other_rows(engine):
    questions = (IT.question, *(asked(word).question for word in ("red", "blue", "lamp")))
    groups = [ReadGroup(None, "", questions)]
    for target, reference in ((TARGET, "red"), (TARGET, "blue"), ("cat dog " * WINDOW, "lamp " * 200)):
        groups.append(ReadGroup(None, target, questions, (("input", "lamp"), ("reference", reference))))
    together = read(engine, *groups)
    alone = [read(engine, replace(group, tails=(tail,)))[0] for group in groups for tail in group.tails]
    assert together == pytest.approx(alone, abs=1e-4)


def test_every_window_of_a_long_target_is_compared_with_the_reference(engine):
    filler = "cat dog " * WINDOW
    context = (("input", "lamp"), ("reference", "red"))
    targets = (filler, "red " + filler, filler + "red")
    groups = [ReadGroup(None, target, (IT.question,), context) for target in targets]
    without, early, late = read(engine, *groups)
    assert min(early, late) > without


def test_the_reference_is_part_of_the_key_of_a_stored_answer(folder, tmp_path):
    reads = [Ask(IT, TARGET, "lamp", word) for word in ("red", "blue", "red")]
    reads += [Ask(IT, TARGET), Ask(IT, TARGET, "")]
    first = EncoderJudge(folder, store=Store(tmp_path / "store.sqlite"))
    found, spent = first.answer(reads)
    assert (spent.asked, spent.deduplicated) == (3, 2)
    assert found[0] == found[2] != found[1] and found[3] == found[4]
    again = EncoderJudge(folder, store=Store(tmp_path / "store.sqlite"))
    verdicts, spent = again.answer([*reads, Ask(IT, TARGET, "tree", "red"), Ask(IT, TARGET, None, "red")])
    assert verdicts[:5] == found and (spent.asked, spent.stored) == (2, 3)

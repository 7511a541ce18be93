"""The encoder judge: a tiny cross-encoder that learned which words a text mentions, and reads as any judge does."""

import json
import math

import pytest
import torch
from transformers import AutoTokenizer

from checklist_rewards import ChecklistScorer
from checklist_rewards.backends import Engine, choose_backend, is_encoder, load_backend
from checklist_rewards.backends.base import ReadGroup, Sampling
from checklist_rewards.backends.budget import Budget
from checklist_rewards.backends.encoder import EncoderBackend
from checklist_rewards.backends.encoder_rows import WINDOW, EncoderTexts, rows_of
from checklist_rewards.checklists import ChecklistItem
from checklist_rewards.distill.training import Training, train_encoder
from checklist_rewards.errors import BackendError, ChecklistError, ModelError, SampleError
from checklist_rewards.files.store import Store, key_of
from checklist_rewards.judges import Ask, EncoderJudge
from checklist_rewards.judges.settings import JudgeConfig
from tests.encoders import WORDS, compared, mentions, tiny_bert

YES_NO = ("yes", "no")


@pytest.fixture(scope="module", params=["packed", "matched"])
def layout(request):
    return request.param


@pytest.fixture(scope="module")
def folder(tmp_path_factory, layout):
    """A judge, trained for a few seconds."""
    place = tmp_path_factory.mktemp("encoder")
    training = Training(6, learning_rate=1e-2, targets=16, layout=layout, freeze_embeddings=False, bf16=False)
    train_encoder(mentions(80), place / "judge", base=tiny_bert(place / "base"), training=training)
    return str(place / "judge")


@pytest.fixture(scope="module")
def engine(folder):
    return EncoderBackend(folder)


def asked(word):
    return ChecklistItem(question=f"does it mention {word} ?")


def p_yes(engine, target, *words):
    reads, _ = engine.read([ReadGroup(None, target, tuple(asked(word).question for word in words))], YES_NO)
    return [read.logprobs and read.logprobs[0] for read in reads]


def test_the_identity_of_a_judge_is_the_same_before_and_after_its_first_use(folder):
    scorer = ChecklistScorer(folder, store=False)
    before = scorer.identity
    scorer.score([asked("cat").question], "red cat dog")
    assert "context" in vars(scorer.judge) and scorer.identity == before


def test_it_has_learned_what_a_text_mentions_and_says_it_of_texts_it_has_not_seen(folder):
    pairs = mentions(60, seed=1)
    judge = EncoderJudge(folder)
    verdicts = judge.answer([Ask(ChecklistItem(question=pair.question), pair.target) for pair in pairs])[0]
    right = [(verdict.probabilities["yes"] > 0.5) == (pair.label > 0.5) for verdict, pair in zip(verdicts, pairs)]  # noqa: B905
    assert sum(right) / len(right) > 0.95
    assert {verdict.method for verdict in verdicts} == {"logprobs"} and verdicts[0].judge == folder
    assert all(sum(verdict.probabilities.values()) == pytest.approx(1) for verdict in verdicts)


def test_a_folder_is_known_for_an_encoder_and_scored_with_like_any_model(folder):
    assert is_encoder(folder) and choose_backend(folder) == "encoder"
    scorer = ChecklistScorer(folder, store=False)
    assert isinstance(scorer.judge, EncoderJudge)
    score = scorer.score([asked("red"), asked("lamp")], target="red cat dog tree river")
    assert [line.answer for line in score.items] == ["yes", "no"]
    assert score.pass_rate == 0.5
    assert load_backend(folder) is load_backend(folder, "encoder")


def test_an_answer_does_not_depend_on_what_else_is_asked(engine):
    together = p_yes(engine, "red cat dog tree river", *WORDS)
    alone = [p_yes(engine, "red cat dog tree river", word)[0] for word in WORDS]
    assert together == pytest.approx(alone, abs=1e-4)
    assert p_yes(engine, "red cat dog tree river", *reversed(WORDS)) == pytest.approx(together[::-1], abs=1e-4)


def test_packed_each_target_is_read_once_for_all_its_questions(engine, layout):
    target = ReadGroup(None, "red cat dog tree river", tuple(asked(word).question for word in WORDS[:4]))
    _, cost = engine.read([target], YES_NO)
    assert cost.floor_tokens == (5 + 2) + 4 * (5 + 2)
    if layout == "packed":
        assert cost.computed_tokens == cost.floor_tokens
        assert cost.prompt_tokens == 4 * ((5 + 2) + (5 + 2))
    else:  # anew for every question, the two framed together
        assert cost.computed_tokens == cost.prompt_tokens == 4 * (5 + 5 + 3)


def test_the_tokens_that_both_have_are_marked_on_either_side(engine, layout):
    [row, *_], _ = rows_of(engine.texts, engine.model, [ReadGroup(None, "red cat", ("does it mention red ?",))])
    if layout == "matched":
        tokens = engine.texts.tokenizer.convert_ids_to_tokens(row.target)
        assert [token for token, kind in zip(tokens, row.kinds, strict=True) if kind] == ["red", "red"]
    else:
        assert row.kinds is None  # marked when the row is computed, in the questions


def test_a_long_target_is_read_in_windows_and_the_most_certain_one_counts(engine):
    filler = "cat dog " * WINDOW
    early, late = p_yes(engine, "red " + filler, "red")[0], p_yes(engine, filler + "red", "red")[0]
    assert min(early, late) > p_yes(engine, filler, "red")[0]
    room = WINDOW - 2
    [part] = [p_yes(engine, " ".join((filler + "red").split()[-(room):]), "red")[0]]
    assert late == pytest.approx(part, abs=1e-3) or late > part  # some window sees it, and none takes it back


def test_equal_reads_are_made_once_and_a_rerun_makes_none(folder, tmp_path):
    reads = [Ask(asked(word), "red cat dog tree river") for word in ("red", "lamp", "red")]
    first = EncoderJudge(folder, store=Store(tmp_path / "store.sqlite"))
    found, spent = first.answer(reads)
    assert (spent.asked, spent.deduplicated) == (2, 1)
    again = EncoderJudge(folder, store=Store(tmp_path / "store.sqlite"))
    verdicts, spent = again.answer([*reads, Ask(asked("dog"), "red cat dog tree river")])
    assert verdicts[:3] == found and (spent.asked, spent.stored) == (1, 2)


def test_input_and_reference_do_not_change_what_it_sees_unless_it_was_trained_with_them(folder, tmp_path):
    judge = EncoderJudge(folder, store=Store(tmp_path / "store.sqlite"))
    reads = [Ask(asked("red"), "red cat"), Ask(asked("red"), "red cat", input="Paint.", reference="blue")]
    assert judge.answer(reads)[1].deduplicated == 1 and judge.context == ()
    # Answers stored by earlier versions are found.
    key = key_of(key_of("encoder-read-1", judge.engine.identity, "red cat"), asked("red").question)
    assert len(judge.store.get([key])) == 1


def test_a_retrained_folder_is_another_judge(folder, tmp_path):
    import shutil

    copy = shutil.copytree(folder, tmp_path / "copy")
    assert EncoderJudge(str(copy)).engine.identity == EncoderJudge(folder).engine.identity
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"layer_norm_eps": 1e-5}))
    assert EncoderJudge(str(copy)).engine.identity != EncoderJudge(folder).engine.identity


def test_half_precision_gives_nearly_the_same_answers_and_is_another_judge(folder, engine):
    half = EncoderJudge(Engine(folder, settings={"dtype": "bfloat16"}))
    assert half.engine.identity != EncoderJudge(folder).engine.identity
    assert {weight.dtype for weight in half.engine.load().model.parameters()} == {torch.bfloat16}
    for target in ("red cat dog tree river", "cat dog " * WINDOW + "red"):
        found = half.answer([Ask(asked(word), target) for word in WORDS])[0]
        exact = [math.exp(logprob) for logprob in p_yes(engine, target, *WORDS)]
        assert [verdict.probabilities["yes"] for verdict in found] == pytest.approx(exact, abs=0.05)


@pytest.mark.parametrize("dtype", ["int8", "float16", None])
def test_other_precisions_are_refused(folder, dtype):
    with pytest.raises(ModelError) as refused:
        EncoderBackend(folder, dtype=dtype)
    assert str(refused.value) == f"dtype={dtype!r} is not supported by an encoder; use 'float32' or 'bfloat16'."


def test_what_does_not_fit_is_unanswered_and_its_neighbours_are_not(folder):
    score = ChecklistScorer(folder, store=False).score(
        [ChecklistItem(question="does it mention red ? " * 40), asked("red")], target="red cat"
    )
    assert [line.unanswered for line in score.items] == ["too_long", None]
    assert score.answered == 1


def test_an_engine_that_breaks_leaves_reads_unanswered_and_out_of_the_store(folder, tmp_path, monkeypatch):
    engine = EncoderBackend(folder)
    judge = EncoderJudge(folder, backend=engine, store=Store(tmp_path / "store.sqlite"))
    monkeypatch.setattr(engine.model, "forward", None)
    monkeypatch.setattr(engine.model.base_model, "forward", _out_of_memory)
    [verdict] = judge.answer([Ask(asked("red"), "red")])[0]
    assert verdict.unanswered == "backend_error: the encoder failed: out of memory" and verdict.probabilities is None
    assert len(judge.store) == 0
    with pytest.raises(BackendError, match="out of memory"):
        engine.read([ReadGroup(None, "red", ("red ?",))], YES_NO)


def _out_of_memory(**_):
    raise RuntimeError("out of memory\nof the second line nobody needs to know")


def test_weights_that_give_no_number_give_no_answer(folder):
    engine = EncoderBackend(folder)
    with torch.no_grad():
        engine.model.classifier.bias.fill_(float("nan"))
    [verdict] = EncoderJudge(folder, backend=engine).answer([Ask(asked("red"), "red")])[0]
    assert verdict.unanswered == "not_finite"


def test_a_window_without_a_number_is_not_hidden_by_one_with(folder, monkeypatch):
    from checklist_rewards.backends import encoder

    engine = EncoderBackend(folder)
    real = encoder.logits

    def one_broken(model, rows):
        found = real(model, rows).clone()
        found[0] = float("nan")
        return found

    monkeypatch.setattr(encoder, "logits", one_broken)
    [read], _ = engine.read([ReadGroup(None, "cat " * 3 * WINDOW, ("does it mention red ?",))], YES_NO)
    assert read.unanswered == "not_finite"


def test_an_empty_target_is_read(engine):
    assert p_yes(engine, "", "red")[0] < -0.7


def test_items_that_are_not_answered_by_yes_or_no_are_refused(folder):
    graded = {"question": "how red is it ?", "options": [{"label": "1", "value": 0}, {"label": "2", "value": 1}]}
    with pytest.raises(
        ChecklistError, match="sample 1, item .* it has options, but an encoder only answers yes or no"
    ):
        ChecklistScorer(folder, store=False).score([graded], target="red")


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"mode": "batch"}, "mode='batch'"), ({"prompt": "judges/item"}, "prompt="), ({"votes": 3}, "votes=3")],
)
def test_settings_that_say_how_a_model_is_prompted_are_refused(folder, settings, named):
    with pytest.raises(SampleError, match=named):
        ChecklistScorer(folder, store=False, **settings)


def test_it_writes_nothing_and_other_engines_do_not_read_it(folder, engine):
    with pytest.raises(ModelError, match="can only answer questions"):
        engine.generate([[{"role": "user", "content": "Hi."}]], Sampling())
    with pytest.raises(ModelError, match="cross-encoder, which transformers does not support"):
        choose_backend(folder, "transformers")
    with pytest.raises(ModelError, match="it cannot be used with the labels A, B"):
        engine.read([ReadGroup(None, "red", ("red ?",))], ("A", "B"))


def test_a_model_that_is_no_judge_is_refused(tmp_path):
    from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

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
    training = Training(epochs=1, learning_rate=5e-3, targets=16, freeze_embeddings=False, bf16=False)
    base = tiny_bert(tmp_path / "base", "electra")
    record = train_encoder(compared(15) + mentions(30), tmp_path / "judge", base=base, training=training)
    engine = EncoderBackend(str(tmp_path / "judge"))
    assert not {"checklist_layout", "checklist_context"} & set(
        json.loads((tmp_path / "judge/config.json").read_text())
    )
    assert record["context"] == {}  # such an encoder reads the target and the question only, and its card says so
    found = p_yes(engine, "red cat dog tree river", *WORDS)
    # Pairs are padded together, which changes no answer.
    alone = [p_yes(engine, "red cat dog tree river", word)[0] for word in WORDS]
    assert found == pytest.approx(alone, abs=1e-4)
    assert p_yes(engine, "cat dog " * 600 + "red", "red")[0] is not None


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
    expected = tokenizer(
        question,
        target,
        truncation="only_second",
        max_length=32,
        stride=8,
        return_overflowing_tokens=True,
        return_token_type_ids=True,
    )
    texts = EncoderTexts(tokenizer)
    pairs = list(texts.pairs(*texts.tokens([question, target]), 32))
    assert pairs == list(zip(expected["input_ids"], expected["token_type_ids"], strict=True))
    assert len(pairs) > 2


def test_a_budget_does_not_hide_a_cross_encoder():
    limited = Budget(1.0, {"org/encoder": (0, 0)}).limited(Engine("org/encoder", "encoder"))
    assert limited.backend_name == "encoder" and isinstance(
        JudgeConfig(model=limited).build(store=False), EncoderJudge
    )

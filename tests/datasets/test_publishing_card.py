"""What a dataset says of itself."""

from huggingface_hub import DatasetCard

from checklist_rewards import __version__
from checklist_rewards.datasets import CHECKLIST_COLUMNS, checklist_card, import_checklists
from checklist_rewards.datasets.publishing import completed_card
from tests.datasets.building import build
from tests.jsonl import write_jsonl


def test_the_card_says_what_is_in_it_and_how_to_train_with_it():
    card = checklist_card(build(["a", "b", "c"]), "somebody/cities", split="test")
    assert card.data.to_dict() == {
        "pretty_name": "cities",
        "size_categories": ["n<1K"],
        "tags": ["checklist", "checklist-rewards", "reward-model", "trl"],
        "task_categories": ["text-generation"],
    }
    for line in (
        "# cities",
        "| prompts | 3 |",
        "| questions | 6 (2.0 per prompt, from 2 to 2) |",
        "| written by | `fake` |",
        f"| pipeline | `tick/{__version__}` |",
        '    train_dataset=load_dataset("somebody/cities", split="test"),',
        "    reward_funcs=ChecklistReward(",
    ):
        assert line in card.text
    assert all(f"- `{name}`: " in card.text for name in ("prompt", *CHECKLIST_COLUMNS))


def test_the_card_of_imported_checklists_names_no_model(tmp_path):
    dataset = import_checklists(
        write_jsonl(tmp_path / "a.jsonl", {"prompt": "a", "checklist": ["Is it short?"], "n": 1})
    )
    text = checklist_card(dataset, "somebody/cities").text
    assert "| written by | not recorded |" in text and "The checklists were imported unchanged." in text
    assert "- `n`: from the source" in text


def test_a_published_card_keeps_its_own_text_and_entries():
    ours = checklist_card(build(["a"]), "somebody/cities")
    fresh = DatasetCard("---\ndataset_info:\n  splits:\n  - name: train\n---\n")
    assert completed_card(fresh, ours).data.dataset_info == {"splits": [{"name": "train"}]}
    assert completed_card(fresh, ours).data.tags == ours.data.tags
    assert completed_card(fresh, ours).text.strip() == ours.text.strip()
    edited = DatasetCard("---\nlicense: mit\ntags: [mine]\n---\n# By hand\n")
    assert completed_card(edited, ours).text.strip() == "# By hand"
    assert (completed_card(edited, ours).data.license, completed_card(edited, ours).data.tags) == ("mit", ["mine"])

"""Chat formats of the model families that people train, as data: templates, markers, and texts that a model writes.

A family is a chat template with the tokens that it needs. [`tokenizer`] builds a byte-level tokenizer with these
tokens, and [`model`] a tiny random model for it, so that real trainers can run on any format without a checkpoint. The
methods of [`Family`] write what a model of the family generates: an answer, a thought with an answer, a thought that
was cut, a tool call.

Templates are the files that TRL ships, and templates typed in for the families that TRL does not ship. The latter
render the turns, thoughts and generation prompts of the family; long system texts and tools are left out. Where it is
not known whether a marker is a special token, one of the two was chosen, so that both kinds occur.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

Arguments = Mapping[str, str]
ARGUMENT = "apple"
"""Value of the argument in tool calls."""


@dataclass(frozen=True)
class Family:
    """A chat format.

    Args:
        name: Name of the family; of a template file in TRL, if it ships one.
        template: Jinja text.
        end: Token that ends an answer.
        special: Tokens that `skip_special_tokens=True` drops, without `end`.
        added: Added tokens that decoding keeps.
        bos: Token at the beginning of a prompt.
        eos: The tokenizer's `eos_token`; `end` by default.
        opens, closes: Text around a thought.
        answer_opens, answer_closes: Text around an answer, if it has markers.
        opened: Whether the generation prompt contains `opens`.
        opened_after_tool: Whether the generation prompt after a tool result contains it; as `opened` by default.
        answer_opened: Whether the generation prompt contains `answer_opens`.
        kwargs: `chat_template_kwargs` with which a model thinks.
        off: `chat_template_kwargs` with which it does not.
        call: Syntax of a tool call: name and arguments to text. None where TRL cannot parse calls.
        call_ends: Token that ends a turn with a call; `end` by default.
        preamble: Text around a sentence before a call; None if the format does not allow one.
        odd_call: A call that models write and TRL's response template does not recognise.
        variants: Other ways to write a thought and the answer "It is 42.".
        blocks: Whether the template takes content as typed blocks only.
        system: Whether the template accepts a system message.
        declares: Whether the tokenizer always has the `response_template`.
        response_template: How `parse_response` parses a reply: "trl" for the one of `add_response_schema`.
    """

    name: str
    template: str
    end: str
    special: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    bos: str | None = None
    eos: str | None = None
    opens: str = "<think>\n"
    closes: str = "\n</think>\n\n"
    answer_opens: str = ""
    answer_closes: str = ""
    opened: bool = False
    opened_after_tool: bool | None = None
    answer_opened: bool = False
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    off: Mapping[str, Any] | None = None
    call: Callable[[str, Arguments], str] | None = None
    call_ends: str | None = None
    preamble: tuple[str, str] | None = ("", "\n")
    odd_call: str | None = None
    variants: tuple[str, ...] = ()
    blocks: bool = False
    system: bool = True
    declares: bool = False
    response_template: Mapping[str, Any] | str | None = None

    @property
    def tag(self) -> str:
        """The marker that opens a thought, as a person would quote it."""
        return self.opens.strip()

    @property
    def drops_markers(self) -> bool:
        """Whether decoding drops a part of the markers of thoughts or answers."""
        markers = self.opens + self.closes + self.answer_opens
        return any(token in markers for token in self.special)

    @property
    def tokens(self) -> tuple[str, ...]:
        """All added tokens: everything in a rendered prompt that is not text of the user or of the template."""
        ends = filter(None, [self.bos, self.eos, self.end, self.call_ends])
        return tuple(dict.fromkeys([*ends, *self.special, *self.added]))

    @property
    def opens_again(self) -> bool:
        """Whether the generation prompt after a tool result contains `opens`."""
        return self.opened if self.opened_after_tool is None else self.opened_after_tool

    # --- what a model writes after a prompt: `rendered` is False for a string that is not a rendered chat template,
    # `after_tool` is True for a turn after a tool result

    def plain(self, answer: str, *, rendered: bool = True, after_tool: bool = False) -> str:
        """An answer without a thought. A thought that the prompt has opened is closed at once."""
        return self._before("", rendered, after_tool) + self._answer(answer, rendered)

    def thought(self, thought: str, answer: str, *, rendered: bool = True, after_tool: bool = False) -> str:
        """A thought and an answer."""
        return self._before(thought, rendered, after_tool) + self._answer(answer, rendered)

    def cut_thought(self, thought: str, *, rendered: bool = True, after_tool: bool = False) -> str:
        """A thought that was cut by the length limit."""
        return ("" if self._opened(rendered, after_tool) else self.opens) + thought

    def cut_answer(self, thought: str, answer: str) -> str:
        """A thought and the beginning of an answer that was cut by the length limit."""
        return self._before(thought, True, False) + ("" if self.answer_opened else self.answer_opens) + answer

    def calling(
        self, name: str, arguments: Arguments, *, preamble: str = "", thought: str = "", after_tool: bool = False
    ) -> str:
        """A turn that ends with a tool call, after an optional thought and an optional sentence."""
        before = self._before(thought, True, after_tool) + self._preamble(preamble)
        return before + self._call(name, arguments) + (self.call_ends or self.end)

    def _opened(self, rendered: bool, after_tool: bool) -> bool:
        return rendered and (self.opens_again if after_tool else self.opened)

    def _before(self, thought: str, rendered: bool, after_tool: bool) -> str:
        opened = self._opened(rendered, after_tool)
        return ("" if opened else self.opens) + thought + self.closes if thought or opened else ""

    def _answer(self, answer: str, rendered: bool) -> str:
        opens = "" if rendered and self.answer_opened else self.answer_opens
        return opens + answer + self.answer_closes + self.end

    def _preamble(self, sentence: str) -> str:
        return self.preamble[0] + sentence + self.preamble[1] if sentence and self.preamble else ""

    def _call(self, name: str, arguments: Arguments) -> str:
        assert self.call is not None, f"{self.name} has no tool calls"
        return self.call(name, arguments)


def tokenizer(family: Family, *, parses: bool = False):
    """A byte-level tokenizer with the tokens and the chat template of a family.

    Args:
        family: The family.
        parses: Whether to set the family's `response_template`.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bare = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bare.decoder = decoders.ByteLevel()
    kept = [token for token in family.added if token not in family.special]
    bare.add_tokens([AddedToken(token, normalized=False, special=False) for token in kept])
    dropped = [token for token in (*family.tokens, "<|padding|>") if token not in kept]
    bare.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in dropped])
    made = PreTrainedTokenizerFast(
        tokenizer_object=bare,
        bos_token=family.bos,
        eos_token=family.eos or family.end,
        pad_token="<|padding|>",
        clean_up_tokenization_spaces=False,
    )
    made.chat_template = family.template
    if (parses or family.declares) and isinstance(family.response_template, Mapping):
        made.response_template = dict(family.response_template)
    elif parses:
        from trl.chat_template_utils import add_response_schema

        add_response_schema(made)
    return made


def model(family: Family, tokens: Any):
    """A tiny random model for the tokenizer of a family."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=len(tokens),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        max_position_embeddings=65_536,
        bos_token_id=tokens.bos_token_id,
        eos_token_id=tokens.eos_token_id,
        pad_token_id=tokens.pad_token_id,
    )
    made = Qwen2ForCausalLM(config)
    ends = dict.fromkeys([tokens.eos_token, family.end, *filter(None, [family.call_ends])])
    made.generation_config.eos_token_id = [tokens.convert_tokens_to_ids(token) for token in ends]
    made.config.name_or_path = family.name
    return made


# --- syntax of tool calls


def _json_call(name: str, arguments: Arguments) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(dict(arguments))}}}\n</tool_call>'


def _xml_call(name: str, arguments: Arguments) -> str:
    values = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{values}</function>\n</tool_call>"


def _glm_call(name: str, arguments: Arguments) -> str:
    values = "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in arguments.items())
    return f"<tool_call>{name}\n{values}</tool_call>"


def _llama_call(name: str, arguments: Arguments) -> str:
    return f'{{"name": "{name}", "parameters": {json.dumps(dict(arguments))}}}'


def _harmony_call(name: str, arguments: Arguments) -> str:
    return f" to=functions.{name}<|channel|>commentary json<|message|>{json.dumps(dict(arguments))}"


def _python_call(name: str, arguments: Arguments) -> str:
    values = ", ".join(f"{key}='{value}'" for key, value in arguments.items())
    return f"<|tool_call_start|>[{name}({values})]<|tool_call_end|>"


def _gemma_call(name: str, arguments: Arguments) -> str:
    values = ",".join(f'{key}:<|"|>{value}<|"|>' for key, value in arguments.items())
    return f"<|tool_call>call:{name}{{{values}}}<tool_call|>"


def _atem_call(name: str, arguments: Arguments) -> str:
    values = "".join(f'<atem:parameter name="{key}">{value}</atem:parameter>\n' for key, value in arguments.items())
    return (
        f" to={name}<|message|><atem:function_calls>\n"
        f'<atem:invoke name="{name}">\n{values}</atem:invoke>\n</atem:function_calls>'
    )


# --- families whose template TRL ships


def _shipped(name: str) -> str:
    import trl

    return (Path(trl.__file__).parent / "chat_templates" / f"{name}.jinja").read_text(encoding="utf-8")


def _of_trl(like: Family, *names: str, **changes: Any) -> list[Family]:
    return [replace(like, name=name, template=_shipped(name), **changes) for name in names]


_NO = Family("", "", "")
_TAGS = ("<think>", "</think>")
_CALL_TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
_IM = ("<|im_start|>", "<|endoftext|>")
_QWEN = replace(
    _NO, end="<|im_end|>", special=_IM, added=(*_TAGS, *_CALL_TAGS), call=_json_call, response_template="trl"
)
_QWEN_XML = replace(_QWEN, call=_xml_call, opened=True, off={"enable_thinking": False})
_NEMOTRON = replace(
    _QWEN_XML, special=(*_IM, *_TAGS), added=_CALL_TAGS, bos="<s>", closes="\n</think>\n", eos="<|im_end|>"
)
_LFM = replace(
    _NO,
    end="<|im_end|>",
    bos="<|startoftext|>",
    special=(*_IM, "<|tool_list_start|>", "<|tool_list_end|>", "<|tool_response_start|>", "<|tool_response_end|>"),
    added=(*_TAGS, "<|tool_call_start|>", "<|tool_call_end|>"),
)
_LFM_CALLS = replace(_LFM, call=_python_call, response_template="trl", preamble=("", ""))
_LLAMA = replace(
    _NO,
    end="<|eot_id|>",
    bos="<|begin_of_text|>",
    special=("<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|python_tag|>", "<|end_of_text|>"),
)
_COHERE = replace(
    _NO,
    end="<|END_OF_TURN_TOKEN|>",
    bos="<BOS_TOKEN>",
    special=("<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|SYSTEM_TOKEN|>"),
)
_COHERE_ANSWER = ("<|START_RESPONSE|>", "<|END_RESPONSE|>")
_DEEPSEEK = replace(
    _NO,
    end="<｜end▁of▁sentence｜>",
    bos="<｜begin▁of▁sentence｜>",
    special=("<｜User｜>", "<｜Assistant｜>"),
    added=(*_TAGS, *(f"<｜tool▁{x}｜>" for x in ("calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep"))),
    opened=True,
)
_GEMMA = replace(_NO, end="<end_of_turn>", bos="<bos>", eos="<eos>", special=("<start_of_turn>",))
_GEMMA_4 = replace(
    _NO,
    end="<turn|>",
    bos="<bos>",
    eos="<eos>",
    special=(
        "<|turn>",
        "<|channel>",
        "<channel|>",
        "<|think|>",
        "<|tool_response>",
        "<tool_response|>",
        "<|tool_call>",
    )
    + ("<tool_call|>", "<|tool>", "<tool|>", '<|"|>', "<|image|>", "<|audio|>", "<|video|>"),
    opens="<|channel>thought\n",
    closes="\n<channel|>",
    kwargs={"enable_thinking": True},
    off={},
    call=_gemma_call,
    call_ends="<|tool_response>",
    preamble=None,
    response_template="trl",
)
_PHI = replace(_NO, end="<|end|>", eos="<|endoftext|>", special=("<|system|>", "<|user|>", "<|assistant|>"))

SHIPPED: tuple[Family, ...] = (
    *_of_trl(_COHERE, "cohere"),
    *_of_trl(
        replace(_COHERE, special=(*_COHERE.special, *_COHERE_ANSWER)),
        "cohere2",
        answer_opens=_COHERE_ANSWER[0],
        answer_closes=_COHERE_ANSWER[1],
        answer_opened=True,
    ),
    *_of_trl(_DEEPSEEK, "deepseek_r1_distill", response_template="trl"),
    *_of_trl(_DEEPSEEK, "deepseekv3"),
    *_of_trl(_GEMMA_4, "diffusion_gemma", response_template=None, call=None),
    *_of_trl(_GEMMA, "gemma", system=False),
    *_of_trl(_GEMMA, "gemma3"),
    *_of_trl(_GEMMA_4, "gemma4", "gemma4_v2", "gemma4_v3", "gemma4_v4"),
    *_of_trl(_GEMMA_4, "gemma4_v5", opened_after_tool=True),
    *_of_trl(
        replace(_NO, end="<|user|>", eos="<|endoftext|>", opens="\n<think>", closes="</think>\n"),
        "glm4moe",
        special=("[gMASK]", "<sop>", "<|system|>", "<|assistant|>", "<|observation|>"),
        added=(*_TAGS, *_CALL_TAGS, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
        off={"enable_thinking": False},
        call=_glm_call,
        call_ends="<|observation|>",
        response_template="trl",
    ),
    *_of_trl(
        replace(_NO, end="<|return|>", call=_harmony_call, call_ends="<|call|>", response_template="trl"),
        "gptoss",
        special=("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>"),
        opens="<|channel|>analysis<|message|>",
        closes="<|end|><|start|>assistant",
        answer_opens="<|channel|>final<|message|>",
        preamble=("<|channel|>commentary<|message|>", "<|end|><|start|>assistant"),
        odd_call=" to=functions.lookup<|channel|>commentary <|constrain|>json<|message|>"
        f'{{"word": "{ARGUMENT}"}}<|call|>',
        variants=(
            "<|channel|>analysis<|message|>Plan.<|end|><|start|>assistant<|channel|>final <|constrain|>json<|message|>"
            "It is 42.<|return|>",
            "<|channel|>analysis<|message|>Plan.<|end|><|start|>assistant<|channel|>final<|message|>It is 42.<|end|>",
            "<|channel|>commentary<|message|>I answer at once.<|end|><|start|>assistant<|channel|>final<|message|>"
            "It is 42.<|return|>",
            "<|channel|>analysis<|message|>Plan.<|end|><|start|>assistant<|channel|>analysis<|message|>More."
            "<|end|><|start|>assistant<|channel|>final<|message|>It is 42.<|return|>",
        ),
    ),
    *_of_trl(_NO, "idefics3", end="<end_of_utterance>", bos="<|begin_of_text|>", special=("<image>",), blocks=True),
    *_of_trl(_LFM, "lfm2"),
    *_of_trl(_LFM_CALLS, "lfm2_v2", "lfm2_2_5", "lfm2_2_5_v2", "lfm2_2_5_vl"),
    *_of_trl(_LLAMA, "llama3"),
    *_of_trl(_LLAMA, "llama3_1", "llama3_2", call=_llama_call, preamble=None, response_template="trl"),
    *_of_trl(_NO, "llava_next", end="</s>", bos="<s>", special=("<image>",), blocks=True),
    *_of_trl(
        replace(_NO, end="<|eot|>", bos="<|begin_of_text|>", special=("<|start|>", "<|message|>", "<|eom|>")),
        "muse_glimmer",
        opens=" to=self<|message|>",
        closes="<|eom|><|start|>assistant",
        answer_opens=" to=user<|message|>",
        call=_atem_call,
        preamble=(" to=user<|message|>", "<|eom|><|start|>assistant"),
        response_template={
            "defaults": {"role": "assistant"},
            "start_anchor": "<|start|>assistant",
            "fields": {
                "reasoning_content": {
                    "open": " to=self<|message|>",
                    "close_pattern": r"<\|eom\|>(?:<\|start\|>assistant)?",
                    "content": "text",
                },
                "tool_calls": {
                    "open_pattern": r" to=\S+?<\|message\|><atem:function_calls>\s*"
                    r'<atem:invoke name="(?P<name>[^"]+)">',
                    "close_pattern": r"</atem:function_calls>(?:<\|eo[mt]\|>)?(?:<\|start\|>assistant)?",
                    "repeats": True,
                    "content": "xml-inline",
                    "content_args": {
                        "tag_pattern": r'<atem:parameter name="(?P<key>[^"]+)">(?P<value>.*?)</atem:parameter>',
                        "value_parser": {"name": "text"},
                    },
                    "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
                },
                "content": {
                    "open": " to=user<|message|>",
                    "close_pattern": r"(?:<\|eot\|>|<\|eom\|>(?:<\|start\|>assistant)?)",
                    "content": "text",
                },
            },
        },
    ),
    *_of_trl(_NEMOTRON, "nemotron_3_nano", "nemotron_3_super", "nemotron_3_ultra", "nemotron_3_5_lightning"),
    *_of_trl(_PHI, "phi3", "phi3_5"),
    *_of_trl(_QWEN, "qwen2_5", special=_IM, added=_CALL_TAGS[:2]),
    *_of_trl(_QWEN, "qwen2_5_vl", added=(), call=None, response_template=None),
    *_of_trl(_QWEN, "qwen3", off={"enable_thinking": False}),
    *_of_trl(_QWEN, "qwen3_instruct_2507", "qwen3_vl"),
    *_of_trl(_QWEN_XML, "qwen3_5_think", "qwen3_6", "qwen3_8"),
    *_of_trl(_QWEN_XML, "qwen3_5_nothink", kwargs={"enable_thinking": True}, off={}),
    *_of_trl(_NO, "smolvlm", end="<end_of_utterance>", special=("<|im_start|>", "<image>"), blocks=True),
)


# --- families whose template was typed in


def chat_template(
    *,
    system: str,
    user: str,
    assistant: str,
    prompt: str,
    thought: str = "",
    no_thought: str = "",
    off: tuple[str, str] | None = None,
    head: str = "",
    default_system: str = "",
) -> str:
    """A chat template.

    Args:
        system, user, assistant: One turn. TEXT stands for the content, in `assistant` with the thought before it.
        prompt: The generation prompt.
        thought: A thought of the turns after the last user message, with THOUGHT for its text.
        no_thought: What stands there in an answer without a thought, and in earlier answers.
        off: A condition, and the generation prompt where it holds.
        head: The beginning of every prompt.
        default_system: Content of the system turn where the messages have none.
    """

    def literal(text: str, **names: str) -> str:
        parts = [json.dumps(text, ensure_ascii=False)]
        for name, variable in names.items():
            parts = [part for piece in parts for part in _around(piece, name, variable)]
        return "{{- " + " ~ ".join(parts) + " -}}"

    switched = f"{{%- if {off[0]} -%}}{literal(off[1])}{{%- else -%}}{literal(prompt)}{{%- endif -%}}" if off else ""
    first = literal(system.replace("TEXT", default_system)) if default_system else ""
    return (
        (literal(head) if head else "")
        + ("{%- if messages[0].role != 'system' -%}" + first + "{%- endif -%}" if first else "")
        + "{%- set ns = namespace(last=-1) -%}{%- for m in messages -%}{%- if m.role == 'user' -%}"
        "{%- set ns.last = loop.index0 -%}{%- endif -%}{%- endfor -%}{%- for m in messages -%}"
        "{%- set text = m.content if m.content is string else m.content | map(attribute='text') | join -%}"
        "{%- if m.role == 'system' -%}"
        + literal(system, TEXT="text")
        + "{%- elif m.role == 'assistant' -%}"
        + literal(assistant.partition("TEXT")[0])
        + "{%- if m.reasoning_content and loop.index0 > ns.last -%}"
        + literal(thought, THOUGHT="m.reasoning_content")
        + "{%- else -%}"
        + literal(no_thought)
        + "{%- endif -%}{{- text -}}"
        + literal(assistant.partition("TEXT")[2])
        + "{%- else -%}"
        + literal(user, TEXT="text")
        + "{%- endif -%}{%- endfor -%}{%- if add_generation_prompt -%}"
        + (switched or literal(prompt))
        + "{%- endif -%}"
    )


def _around(piece: str, name: str, variable: str) -> list[str]:
    before, found, after = piece.partition(name)
    return [before + '"', variable, '"' + after] if found else [piece]


def roles(turn: str, **names: str) -> dict[str, str]:
    """The turns of a template that differ in the name of the role only."""
    return {role: turn.replace("ROLE", names.get(role, role)) for role in ("system", "user", "assistant")}


_IM_TURN = "<|im_start|>ROLE\nTEXT<|im_end|>\n"
_IM_PROMPT = "<|im_start|>assistant\n"
_THINK = "<think>\nTHOUGHT\n</think>\n\n"
_CHATML = replace(_NO, end="<|im_end|>", special=_IM)
_MISTRAL = {
    "system": "[SYSTEM_PROMPT]TEXT[/SYSTEM_PROMPT]",
    "user": "[INST]TEXT[/INST]",
    "assistant": "TEXT</s>",
    "prompt": "",
    "head": "<s>",
}
_MISTRAL_TOKENS = ("[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]")
_COHERE_TURNS = {
    "head": "<BOS_TOKEN>",
    "system": "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>TEXT<|END_OF_TURN_TOKEN|>",
    "user": "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>TEXT<|END_OF_TURN_TOKEN|>",
}
_COHERE_PROMPT = "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"
_COHERE_THINKS = replace(_COHERE, opens="<|START_THINKING|>", closes="<|END_THINKING|>")
_COHERE_THOUGHT = ("<|START_THINKING|>", "<|END_THINKING|>")
_GRANITE = {
    **roles("<|start_of_role|>ROLE<|end_of_role|>TEXT<|end_of_text|>\n"),
    "prompt": "<|start_of_role|>assistant<|end_of_role|>",
}
_GRANITE_FAMILY = replace(
    _NO, end="<|end_of_text|>", special=("<|start_of_role|>", "<|end_of_role|>"), kwargs={"thinking": True}, off={}
)
_KIMI = {
    "system": "<|im_system|>system<|im_middle|>TEXT<|im_end|>",
    "user": "<|im_user|>user<|im_middle|>TEXT<|im_end|>",
    "assistant": "<|im_assistant|>assistant<|im_middle|>TEXT<|im_end|>",
    "prompt": "<|im_assistant|>assistant<|im_middle|>",
    "default_system": "You are a helpful assistant.",
}
_KIMI_TOKENS = ("<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "[EOS]")
_XTML_TURN = '<|open|>message role="ROLE"<|sep|>TEXT<|close|>message<|sep|><|end_of_msg|>'
_HY_TAGS = ("<think:opensource>", "</think:opensource>")
_HY_4_TAGS = ("<think:6124c78e>", "</think:6124c78e>")
_HUNYUAN = replace(_NO, end="<｜hy_eos｜>", bos="<｜hy_bos｜>", special=("<｜hy_User｜>", "<｜hy_Assistant｜>"))
_HY_TURNS = {
    "head": "<｜hy_bos｜>",
    "system": "TEXT",
    "user": "<｜hy_User｜>TEXT",
    "assistant": "<｜hy_Assistant｜>TEXT<｜hy_eos｜>",
}

TYPED: tuple[Family, ...] = (
    replace(
        _NO,
        name="magistral",
        template=chat_template(**_MISTRAL, thought="[THINK]THOUGHT[/THINK]"),
        end="</s>",
        bos="<s>",
        special=(*_MISTRAL_TOKENS, "[THINK]", "[/THINK]"),
        opens="[THINK]",
        closes="[/THINK]",
    ),
    replace(
        _NO,
        name="magistral_v11",
        template=chat_template(
            **_MISTRAL,
            thought=_THINK,
            default_system="Think first, in the form:\n<think>\nYour thoughts.\n</think>\nThen write a summary.",
        ),
        end="</s>",
        bos="<s>",
        special=_MISTRAL_TOKENS,
    ),
    replace(
        _NO,
        name="seed_oss",
        template=chat_template(
            **roles("<seed:bos>ROLE\nTEXT<seed:eos>"),
            thought="<seed:think>THOUGHT</seed:think>\n",
            prompt="<seed:bos>assistant\n",
            off=("thinking_budget is defined and thinking_budget == 0",)
            + ("<seed:bos>assistant\n<seed:think><seed:cot_budget_reflect>",),
        ),
        off={"thinking_budget": 0},
        end="<seed:eos>",
        special=("<seed:bos>", "<seed:think>", "</seed:think>", "<seed:cot_budget_reflect>")
        + ("</seed:cot_budget_reflect>", "<seed:tool_call>", "</seed:tool_call>"),
        opens="<seed:think>",
        closes="</seed:think>",
    ),
    replace(
        _COHERE_THINKS,
        name="cohere_reasoning",
        template=chat_template(
            **_COHERE_TURNS,
            thought="<|START_THINKING|>THOUGHT<|END_THINKING|><|START_RESPONSE|>",
            assistant=f"{_COHERE_PROMPT}TEXT<|END_RESPONSE|><|END_OF_TURN_TOKEN|>",
            no_thought="<|START_RESPONSE|>",
            prompt=_COHERE_PROMPT,
            off=("reasoning is defined and not reasoning", f"{_COHERE_PROMPT}<|START_THINKING|><|END_THINKING|>"),
        ),
        special=(*_COHERE.special, *_COHERE_THOUGHT, *_COHERE_ANSWER),
        answer_opens=_COHERE_ANSWER[0],
        answer_closes=_COHERE_ANSWER[1],
        variants=("<|START_THINKING|>Plan.<|END_THINKING|>It is 42.<|END_OF_TURN_TOKEN|>",),
        off={"reasoning": False},
    ),
    replace(
        _COHERE_THINKS,
        name="cohere_north",
        template=chat_template(
            **_COHERE_TURNS,
            thought="<|START_THINKING|>THOUGHT<|END_THINKING|><|START_TEXT|>",
            assistant=f"{_COHERE_PROMPT}TEXT<|END_TEXT|><|END_OF_TURN_TOKEN|>",
            no_thought="<|START_TEXT|>",
            prompt=f"{_COHERE_PROMPT}<|START_THINKING|>",
            off=("reasoning is defined and not reasoning", f"{_COHERE_PROMPT}<|START_THINKING|><|END_THINKING|>"),
        ),
        special=(*_COHERE.special, *_COHERE_THOUGHT, "<|START_TEXT|>", "<|END_TEXT|>"),
        answer_opens="<|START_TEXT|>",
        answer_closes="<|END_TEXT|>",
        variants=("Plan.<|END_THINKING|>It is 42.<|END_OF_TURN_TOKEN|>",),
        opened=True,
        off={"reasoning": False},
    ),
    replace(
        _NO,
        name="kimi_vl",
        template=chat_template(**_KIMI),
        end="<|im_end|>",
        special=_KIMI_TOKENS,
        opens="◁think▷",
        closes="◁/think▷",
    ),
    replace(
        _NO,
        name="kimi_k2_thinking",
        template=chat_template(**_KIMI, thought="<think>THOUGHT</think>", no_thought="<think></think>"),
        end="<|im_end|>",
        special=_KIMI_TOKENS,
        added=_TAGS,
        opens="<think>",
        closes="</think>",
    ),
    replace(
        _NO,
        name="kimi_k3",
        template=chat_template(
            system=_XTML_TURN.replace("ROLE", "system"),
            user=_XTML_TURN.replace("ROLE", "user"),
            assistant='<|open|>message role="assistant"<|sep|>TEXT<|close|>response<|sep|>'
            "<|close|>message<|sep|><|end_of_msg|>",
            thought="<|open|>think<|sep|>THOUGHT<|close|>think<|sep|><|open|>response<|sep|>",
            no_thought="<|open|>think<|sep|><|close|>think<|sep|><|open|>response<|sep|>",
            prompt='<|open|>message role="assistant"<|sep|><|open|>think<|sep|>',
            off=("thinking is defined and not thinking",)
            + ('<|open|>message role="assistant"<|sep|><|open|>response<|sep|>',),
        ),
        off={"thinking": False},
        end="<|end_of_msg|>",
        special=("<|open|>", "<|close|>", "<|sep|>"),
        opens="<|open|>think<|sep|>",
        closes="<|close|>think<|sep|>",
        answer_opens="<|open|>response<|sep|>",
        answer_closes="<|close|>response<|sep|><|close|>message<|sep|>",
        opened=True,
    ),
    replace(
        _NO,
        name="inkling",
        template=chat_template(
            system="<|message_system|><|content_text|>TEXT<|end_message|>",
            user="<|message_user|><|content_text|>TEXT<|end_message|>",
            assistant="<|message_model|>TEXT<|end_message|><|content_model_end_sampling|>",
            thought="<|content_thinking|>THOUGHT<|end_message|><|message_model|><|content_text|>",
            no_thought="<|content_text|>",
            prompt="<|message_model|>",
        ),
        end="<|content_model_end_sampling|>",
        special=("<|message_system|>", "<|message_user|>", "<|message_model|>", "<|content_text|>")
        + ("<|content_thinking|>", "<|end_message|>", "<|content_invoke_tool_json|>"),
        opens="<|content_thinking|>",
        closes="<|end_message|><|message_model|>",
        answer_opens="<|content_text|>",
        answer_closes="<|end_message|>",
    ),
    replace(
        _NO,
        name="minimax_m2",
        template=chat_template(
            **roles("]~b]ROLE\nTEXT[e~[\n", assistant="ai"),
            head="]~!b[",
            thought=_THINK,
            prompt="]~b]ai\n<think>\n",
            default_system="You are a helpful assistant.",
        ),
        end="[e~[",
        special=("]~!b[", "]~b]"),
        added=(*_TAGS, "<minimax:tool_call>", "</minimax:tool_call>"),
        opened=True,
    ),
    replace(
        _NO,
        name="minimax_m3",
        template=chat_template(
            **roles("]~b]ROLE\nTEXT[e~[\n", assistant="ai"),
            head="]~!b[",
            thought="<mm:think>THOUGHT</mm:think>",
            prompt="]~b]ai\n<mm:think>",
            off=("thinking_mode is defined and thinking_mode == 'disabled'", "]~b]ai\n</mm:think>"),
        ),
        end="[e~[",
        special=("]~!b[", "]~b]"),
        added=("<mm:think>", "</mm:think>"),
        opens="<mm:think>",
        closes="</mm:think>",
        opened=True,
        off={"thinking_mode": "disabled"},
    ),
    replace(
        _NO,
        name="k2_horizon",
        template=chat_template(
            **roles("<|ifm|im_start|>ROLE\nTEXT<|ifm|im_end|>"),
            head="<|ifm|begin_of_text|>",
            thought="<ifm|think>\nTHOUGHT\n</ifm|think>\n",
            prompt="<|ifm|im_start|>assistant\n<ifm|think>\n",
            off=("reasoning_effort is defined and reasoning_effort == 'low'",)
            + ("<|ifm|im_start|>assistant\n<ifm|think_faster>\n",),
        ),
        end="<|ifm|im_end|>",
        bos="<|ifm|begin_of_text|>",
        special=("<|ifm|im_start|>", "<|ifm|endoftext|>"),
        added=("<ifm|think>", "</ifm|think>", "<ifm|think_faster>", "</ifm|think_faster>"),
        opens="<ifm|think>\n",
        closes="\n</ifm|think>\n",
        opened=True,
    ),
    replace(
        _NO,
        name="hunyuan_a13b",
        template=chat_template(
            system="<|startoftext|>TEXT<|extra_4|>",
            user="<|startoftext|>TEXT<|extra_0|>",
            assistant="TEXT<|eos|>",
            prompt="",
            off=("enable_thinking is defined and not enable_thinking", "<think>\n\n</think>\n"),
        ),
        end="<|eos|>",
        special=("<|startoftext|>", "<|extra_0|>", "<|extra_4|>"),
        closes="\n</think>\n",
        answer_opens="<answer>\n",
        answer_closes="\n</answer>",
        variants=("<think>\nPlan.\n</think>\nIt is 42.<|eos|>", "<think>\n\n</think>\n<answer>\nIt is 42.<|eos|>"),
        off={"enable_thinking": False},
    ),
    replace(
        _HUNYUAN,
        name="hunyuan_v3",
        template=chat_template(
            **_HY_TURNS,
            thought="<think:opensource>THOUGHT</think:opensource>",
            prompt="<｜hy_Assistant｜>",
            off=("reasoning_effort is defined and reasoning_effort == 'no_think'",)
            + ("<｜hy_Assistant｜><think:opensource></think:opensource>",),
        ),
        added=_HY_TAGS,
        opens=_HY_TAGS[0],
        closes=_HY_TAGS[1],
        off={"reasoning_effort": "no_think"},
    ),
    replace(
        _HUNYUAN,
        name="hunyuan_v4",
        template=chat_template(
            **_HY_TURNS,
            thought="<think:6124c78e>THOUGHT</think:6124c78e>",
            prompt="<｜hy_Assistant｜><think:6124c78e>",
            off=("reasoning_effort is defined and reasoning_effort == 'no_think'",)
            + ("<｜hy_Assistant｜><think:6124c78e></think:6124c78e>",),
        ),
        special=(*_HUNYUAN.special, *_HY_4_TAGS),
        opens=_HY_4_TAGS[0],
        closes=_HY_4_TAGS[1],
        opened=True,
        off={"reasoning_effort": "no_think"},
    ),
    replace(
        _NO,
        name="plamo_3",
        template=chat_template(
            **roles("<|plamo:op|>ROLE<|plamo:msg|>TEXT<|plamo:tag|>"),
            thought="<|plamo:begin_think:plamo|>THOUGHT<|plamo:end_think:plamo|>",
            prompt="<|plamo:op|>assistant<|plamo:msg|>",
            off=("enable_thinking is defined and not enable_thinking",)
            + ("<|plamo:op|>assistant<|plamo:msg|><|plamo:begin_think:plamo|><|plamo:end_think:plamo|>",),
        ),
        end="<|plamo:tag|>",
        special=("<|plamo:op|>", "<|plamo:msg|>", "<|plamo:begin_", "<|plamo:end_", ":plamo|>"),
        opens="<|plamo:begin_think:plamo|>",
        closes="<|plamo:end_think:plamo|>",
        off={"enable_thinking": False},
    ),
    replace(
        _CHATML,
        name="phi_4_reasoning",
        template=chat_template(
            **roles("<|im_start|>ROLE<|im_sep|>TEXT<|im_end|>"),
            prompt="<|im_start|>assistant<|im_sep|>",
            default_system="Structure your reply as: <think> {Thought section} </think> {Solution section}.",
        ),
        special=(*_IM, "<|im_sep|>", *_TAGS),
    ),
    replace(
        _CHATML,
        name="smollm3",
        template=chat_template(
            **roles(_IM_TURN) | {"system": "<|im_start|>system\nReasoning Mode: /think\n\nTEXT<|im_end|>\n"},
            thought=_THINK,
            prompt=_IM_PROMPT,
            off=("enable_thinking is defined and not enable_thinking", f"{_IM_PROMPT}<think>\n\n</think>\n"),
            default_system="You are a helpful assistant.",
        ),
        added=_TAGS,
        off={"enable_thinking": False},
    ),
    replace(
        _CHATML,
        name="olmo_3_think",
        template=chat_template(**roles(_IM_TURN), thought=_THINK, prompt=f"{_IM_PROMPT}<think>"),
        opens="<think>",
        opened=True,
    ),
    replace(
        _NO,
        name="step_3",
        template=chat_template(
            **roles("<|BOT|>ROLE\nTEXT<|EOT|>"),
            head="<｜begin▁of▁sentence｜>",
            thought="<think>\nTHOUGHT\n</think>\n",
            prompt="<|BOT|>assistant\n<think>\n",
        ),
        end="<|EOT|>",
        bos="<｜begin▁of▁sentence｜>",
        special=("<|BOT|>",),
        added=_TAGS,
        closes="\n</think>\n",
        opened=True,
    ),
    replace(
        _CHATML,
        name="ernie_4_5_thinking",
        template=chat_template(
            **roles(_IM_TURN) | {"assistant": "<|im_start|>assistant\nTEXT\n</response>\n<|im_end|>\n"},
            thought="<think>\nTHOUGHT\n</think>\n\n<response>\n",
            no_thought="<response>\n",
            prompt=f"{_IM_PROMPT}<think>\n",
        ),
        special=(*_IM, "</s>"),
        added=(*_TAGS, "<response>", "</response>"),
        answer_opens="<response>\n",
        answer_closes="\n</response>\n",
        variants=("Plan.\n</think>\nIt is 42.<|im_end|>",),
        opened=True,
    ),
    replace(
        _GRANITE_FAMILY,
        name="granite_3_3",
        template=chat_template(**_GRANITE, thought="<think>THOUGHT</think><response>").replace(
            "{%- set ns",
            "{%- if thinking -%}{{- '<|start_of_role|>system<|end_of_role|>Write your thoughts between <think></think>"
            " and your answer between <response></response>.<|end_of_text|>\\n' -}}{%- endif -%}{%- set ns",
            1,
        ),
        opens="<think>",
        closes="</think>\n",
        answer_opens="<response>",
        answer_closes="</response>",
        variants=("<think>Plan.</think>It is 42.<|end_of_text|>",),
    ),
    replace(
        _GRANITE_FAMILY,
        name="granite_3_2",
        template=chat_template(**_GRANITE).replace(
            "{%- set ns",
            "{%- if thinking -%}{{- \"<|start_of_role|>system<|end_of_role|>Write your thoughts after 'Here is my "
            "thought process:' and your answer after 'Here is my response:'.<|end_of_text|>\\n\" -}}{%- endif -%}"
            "{%- set ns",
            1,
        ),
        opens="Here is my thought process: ",
        closes="\n\nHere is my response: ",
        variants=("Here's my thought process: Plan.\n\nHere's my response: It is 42.<|end_of_text|>",),
    ),
    replace(
        _NO,
        name="apriel_1_6",
        template=chat_template(
            system="<|begin_system|>\nGive the answer after the marker [BEGIN FINAL RESPONSE].\nTEXT\n",
            user="<|begin_user|>\nTEXT",
            assistant="\n<|begin_assistant|>\nTEXT\n<|end|>\n",
            thought="THOUGHT\n[BEGIN FINAL RESPONSE]\n",
            prompt="\n<|begin_assistant|>\nHere are my reasoning steps:\n",
            default_system="You are a thoughtful assistant.",
        ),
        end="<|end|>",
        special=("<|begin_system|>", "<|begin_user|>", "<|begin_assistant|>"),
        opens="Here are my reasoning steps:\n",
        closes="\n[BEGIN FINAL RESPONSE]\n",
        variants=("Plan.\n[BEGIN FINAL RESPONSE]It is 42.[END FINAL RESPONSE]\n<|end|>",),
        opened=True,
    ),
    replace(
        _LFM,
        name="lfm2_5_thinking",
        template=chat_template(**roles(_IM_TURN), head="<|startoftext|>", thought=_THINK, prompt=_IM_PROMPT),
    ),
    replace(
        _DEEPSEEK,
        name="deepseek_v3_1",
        template=chat_template(
            head="<｜begin▁of▁sentence｜>",
            system="TEXT",
            user="<｜User｜>TEXT",
            assistant="<｜Assistant｜>TEXT<｜end▁of▁sentence｜>",
            no_thought="</think>",
            thought="<think>THOUGHT</think>",
            prompt="<｜Assistant｜></think>",
            off=("thinking is defined and thinking", "<｜Assistant｜><think>"),
        ),
        opens="<think>",
        closes="</think>",
        kwargs={"thinking": True},
        off={},
    ),
    replace(
        _NO,
        name="apertus",
        template=chat_template(
            **{role: f"<|{role}_start|>TEXT<|{role}_end|>" for role in ("system", "user", "assistant")},
            head="<s>",
            prompt="<|assistant_start|>",
            default_system="You are a helpful assistant.",
        ),
        end="<|assistant_end|>",
        bos="<s>",
        special=("<|system_start|>", "<|system_end|>", "<|user_start|>", "<|user_end|>", "<|assistant_start|>")
        + ("<|inner_prefix|>", "<|inner_suffix|>", "<|tools_prefix|>", "<|tools_suffix|>"),
        opens="<|inner_prefix|>",
        closes="<|inner_suffix|>",
    ),
    replace(
        _CHATML,
        name="hyperclovax_seed_think",
        template=chat_template(
            **roles(_IM_TURN) | {"assistant": "TEXT<|im_end|><|endofturn|>\n"},
            thought="<|im_start|>assistant/think\nTHOUGHT<|im_end|>\n<|im_start|>assistant\n",
            no_thought="<|im_start|>assistant\n",
            prompt="<|im_start|>assistant",
            off=("skip_reasoning is defined and skip_reasoning", "<|im_start|>assistant\n"),
        ),
        end="<|endofturn|>",
        special=(*_IM, "<|im_end|>"),
        opens="/think\n",
        closes="<|im_end|>\n<|im_start|>assistant",
        answer_opens="\n",
        answer_closes="<|im_end|>",
        off={"skip_reasoning": True},
    ),
    replace(
        _NO,
        name="solar_open",
        template=chat_template(
            **roles("<|begin|>ROLE<|content|>TEXT<|end|>") | {"assistant": "<|begin|>assistantTEXT<|end|>"},
            thought="<|think|>THOUGHT<|end|><|begin|>assistant<|content|>",
            no_thought="<|content|>",
            prompt="<|begin|>assistant",
            off=("reasoning_effort is defined and reasoning_effort == 'low'",)
            + ("<|begin|>assistant<|think|><|end|><|begin|>assistant",),
        ),
        end="<|flush|>",
        special=("<|calls|>",),
        added=("<|begin|>", "<|think|>", "<|content|>", "<|end|>", "<|tool_calls|>"),
        opens="<|think|>",
        closes="<|end|><|begin|>assistant",
        answer_opens="<|content|>",
        off={"reasoning_effort": "low"},
    ),
    replace(
        _LLAMA,
        name="nemotron_super_1_5",
        template=chat_template(
            **roles("<|start_header_id|>ROLE<|end_header_id|>\n\nTEXT<|eot_id|>"),
            head="<|begin_of_text|>",
            prompt="<|start_header_id|>assistant<|end_header_id|>\n\n",
            off=("'/no_think' in messages[0].content",)
            + ("<|start_header_id|>assistant<|end_header_id|>\n\n<think>\n\n</think>\n\n",),
        ),
    ),
)


# --- invented families

_PONDER = replace(
    _NO,
    end="<|done|>",
    special=("<|role|>", "<<ponder>>", "<</ponder>>"),
    opens="<<ponder>>",
    closes="<</ponder>>",
)
_PONDER_TURNS: dict[str, str] = {**roles("<|role|>ROLE\nTEXT<|done|>\n"), "prompt": "<|role|>assistant\n"}

DECLARED = replace(
    _PONDER,
    declares=True,
    name="declared",
    template=chat_template(**_PONDER_TURNS),
    response_template={
        "defaults": {"role": "assistant"},
        "start_anchor": "<|role|>assistant\n",
        "fields": {
            "reasoning_content": {"open": "<<ponder>>", "close_pattern": r"<</ponder>>\s*", "content": "text"},
            "content": {"close_pattern": r"<\|done\|>\s*", "content": "text"},
        },
    },
)
"""An invented family whose tokenizer declares its markers in a `response_template`."""

RENDERED = replace(
    _PONDER, name="rendered", template=chat_template(**_PONDER_TURNS, thought="<<ponder>>THOUGHT<</ponder>>")
)
"""An invented family whose markers can be found by rendering a message with `reasoning_content`."""

HIDDEN = replace(
    _PONDER,
    name="hidden",
    template=chat_template(**_PONDER_TURNS),
    special=("<|role|>", "<|reasoning_start|>", "<|reasoning_end|>"),
    opens="<|reasoning_start|>",
    closes="<|reasoning_end|>",
)
"""An invented family whose markers are special tokens that nothing declares."""

INVENTED: tuple[Family, ...] = (DECLARED, RENDERED, HIDDEN)
KNOWN: tuple[Family, ...] = (*SHIPPED, *TYPED)
FAMILIES: dict[str, Family] = {family.name: family for family in (*KNOWN, *INVENTED)}


ORDINARY: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("Here is my thought process:", "Here is my response:", ("granite_3_2",)),
    ("Here's my thought process:", "Here's my response:", ("granite_3_2",)),
    ("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", ("apriel_1_6",)),
    ("[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]", ("apriel_1_6",)),
    ("<response>", "</response>", ("granite_3_3", "ernie_4_5_thinking")),
    ("<answer>", "</answer>", ("hunyuan_a13b",)),
    ("/think", "/no_think", ("hyperclovax_seed_think",)),
    ("to=self", "to=user", ("muse_glimmer",)),
    ("analysisResult", "assistantfinal", ("gptoss",)),
    ("analysis(x)", "final-year", ("gptoss",)),
    ("finalScore", "final_score", ("gptoss",)),
)
"""Markers of a thought or an answer, or what remains of them, that also occur in ordinary text: the opening and the
closing one, and the families that show them."""

WORDED = frozenset(
    ("granite_3_2", "granite_3_3", "ernie_4_5_thinking", "apriel_1_6", "hunyuan_a13b", "hyperclovax_seed_think")
)
"""Families whose markers are known from ordinary text by their tokenizer only."""

"""Chat formats of the model families that people train, as data: templates, markers, and texts that a model writes.

A family is a chat template with the tokens that it needs. [`tokenizer`] builds a byte-level tokenizer with these
tokens, and [`model`] a tiny random model for it, so that real trainers can run on any format without a checkpoint. The
methods of [`Family`] write what a model of the family generates: an answer, a thought with an answer, a thought that
was cut, a tool call.

Templates are the files that TRL ships, and templates that [`typed`] makes for the families that TRL does not ship
(`families.yaml`). The latter render the turns, thoughts and generation prompts of the family; long system texts and
tools are left out. Where it is not known whether a marker is a special token, one of the two was chosen, so that both
kinds occur.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

Arguments = Mapping[str, str]
ARGUMENT = "apple"
"""Value of the argument in tool calls."""


@dataclass(frozen=True)
class Family:
    """A chat format."""

    name: str  # of a template file in TRL, if it ships one
    template: str
    end: str  # token that ends an answer
    special: tuple[str, ...] = ()  # tokens that `skip_special_tokens=True` drops, without `end`
    added: tuple[str, ...] = ()  # tokens that decoding keeps
    bos: str | None = None  # token at the beginning of a prompt
    eos: str | None = None  # the tokenizer's `eos_token`; `end` by default
    opens: str = "<think>\n"
    closes: str = "\n</think>\n\n"
    answer_opens: str = ""
    answer_closes: str = ""
    opened: bool = False  # whether the generation prompt contains `opens`
    opened_after_tool: bool | None = None  # the same after a tool result; as `opened` by default
    answer_opened: bool = False  # whether the generation prompt contains `answer_opens`
    kwargs: Mapping[str, Any] = field(default_factory=dict)  # `chat_template_kwargs` with which a model thinks
    off: Mapping[str, Any] | None = None  # those with which it does not
    call: Callable[[str, Arguments], str] | None = None  # text of a tool call; None where TRL cannot parse calls
    call_ends: str | None = None  # token that ends a turn with a call; `end` by default
    preamble: tuple[str, str] | None = ("", "\n")  # text around a sentence before a call; None if none is allowed
    odd_call: str | None = None  # a call that models write and TRL's response template does not recognise
    variants: tuple[str, ...] = ()  # other ways to write a thought and the answer "It is 42."
    blocks: bool = False  # whether the template takes content as typed blocks only
    system: bool = True  # whether the template accepts a system message
    declares: bool = False  # whether the tokenizer always has the `response_template`
    response_template: Mapping[str, Any] | str | None = None  # "trl" for the one of `add_response_schema`

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
        assert self.call is not None, f"{self.name} has no tool calls"
        before = self._before(thought, True, after_tool)
        if preamble and self.preamble:
            before += self.preamble[0] + preamble + self.preamble[1]
        return before + self.call(name, arguments) + (self.call_ends or self.end)

    def _opened(self, rendered: bool, after_tool: bool) -> bool:
        return rendered and (self.opens_again if after_tool else self.opened)

    def _before(self, thought: str, rendered: bool, after_tool: bool) -> str:
        opened = self._opened(rendered, after_tool)
        return ("" if opened else self.opens) + thought + self.closes if thought or opened else ""

    def _answer(self, answer: str, rendered: bool) -> str:
        opens = "" if rendered and self.answer_opened else self.answer_opens
        return opens + answer + self.answer_closes + self.end


def tokenizer(family: Family, *, parses: bool = False):
    """A byte-level tokenizer with the tokens, the chat template and, if it `parses`, the response template of a
    family."""
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


def typed(
    like: Family,
    *,
    turn: str = "",
    system: str | None = None,
    user: str | None = None,
    assistant: str | None = None,
    head: str | None = None,
    default_system: str = "",
    thinking_system: str = "",
    thought: str | None = None,
    no_thought: str | None = None,
    prompt: str | None = None,
    off_adds: str | None = None,
    switch: tuple[str, str] | None = None,
    **fields: Any,
) -> Family:
    """A family with a template made of its turns and markers.

    Args:
        like, fields: The family, as changes of another one.
        turn: A turn, with ROLE for the role and TEXT for the content.
        system, user, assistant: Turns that differ from it. The thought of an answer is before TEXT.
        head: The beginning of every prompt. Defaults to `bos`.
        default_system: Content of the system turn where the messages have none.
        thinking_system: Content of a system turn before all others if `thinking` is set.
        thought: A thought of the turns after the last user message, with THOUGHT for its text. Defaults to the markers
            around it, and `answer_opens`.
        no_thought: What an answer without a thought, and an earlier one, has there. Defaults to `answer_opens`, or to
            nothing if `thought` is given.
        prompt: The generation prompt. Defaults to the beginning of the assistant's turn, with `opens` if `opened`.
        off_adds: What the prompt has after the beginning of the turn where `off` is set. Defaults to an empty thought.
        switch: A condition, and the generation prompt where it holds. Defaults to what `off` and `off_adds` say.
    """

    def literal(text: str, name: str = "TEXT", variable: str = "") -> str:
        quoted = json.dumps(text, ensure_ascii=False)
        return "{{- " + (quoted.replace(name, f'" ~ {variable} ~ "', 1) if variable else quoted) + " -}}"

    family = replace(like, template="", **fields)
    turns = {"system": system, "user": user, "assistant": assistant}
    turns = {role: turn.replace("ROLE", role) if own is None else own for role, own in turns.items()}
    begins, _, ends = turns["assistant"].partition("TEXT")
    if no_thought is None:
        no_thought = family.answer_opens if thought is None else ""
    if thought is None:
        thought = f"{family.opens}THOUGHT{family.closes}{family.answer_opens}"
    if switch is None and family.off:
        [(variable, value)] = family.off.items()
        holds = f"not {variable}" if value is False else f"{variable} == {value!r}"
        added = family.opens + family.closes if off_adds is None else off_adds
        switch = f"{variable} is defined and {holds}", begins + added
    asks = literal(begins + (family.opens if family.opened else "") if prompt is None else prompt)
    if switch is not None:
        asks = f"{{%- if {switch[0]} -%}}{literal(switch[1])}{{%- else -%}}{asks}{{%- endif -%}}"
    first = ""
    for condition, content in (("messages[0].role != 'system'", default_system), ("thinking", thinking_system)):
        if content:
            first += f"{{%- if {condition} -%}}{literal(turns['system'].replace('TEXT', content))}{{%- endif -%}}"
    start = family.bos if head is None else head
    template = (
        (literal(start) if start else "") + first + "{%- set ns = namespace(last=-1) -%}{%- for m in messages -%}"
        "{%- if m.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}{%- endfor -%}"
        "{%- for m in messages -%}"
        "{%- set text = m.content if m.content is string else m.content | map(attribute='text') | join -%}"
        "{%- if m.role == 'system' -%}"
        + literal(turns["system"], "TEXT", "text")
        + "{%- elif m.role == 'assistant' -%}"
        + literal(begins)
        + "{%- if m.reasoning_content and loop.index0 > ns.last -%}"
        + literal(thought, "THOUGHT", "m.reasoning_content")
        + "{%- else -%}"
        + literal(no_thought)
        + "{%- endif -%}{{- text -}}"
        + literal(ends)
        + "{%- else -%}"
        + literal(turns["user"], "TEXT", "text")
        + "{%- endif -%}{%- endfor -%}{%- if add_generation_prompt -%}"
        + asks
        + "{%- endif -%}"
    )
    return replace(family, template=template)


def _typed() -> Iterator[Family]:
    """The families of `families.yaml`."""
    for entry in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")):
        lists = {name: tuple(value) for name, value in entry.items() if isinstance(value, list)}
        yield typed(_NO, **{**entry, **lists})


TYPED: tuple[Family, ...] = tuple(_typed())


# --- invented families

_TURN = "<|role|>ROLE\nTEXT<|done|>\n"
_PONDER = replace(
    _NO,
    end="<|done|>",
    special=("<|role|>", "<<ponder>>", "<</ponder>>"),
    opens="<<ponder>>",
    closes="<</ponder>>",
)

DECLARED = typed(
    _PONDER,
    turn=_TURN,
    thought="",
    name="declared",
    declares=True,
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

RENDERED = typed(_PONDER, turn=_TURN, name="rendered")
"""An invented family whose markers can be found by rendering a message with `reasoning_content`."""

HIDDEN = typed(
    _PONDER,
    turn=_TURN,
    thought="",
    name="hidden",
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

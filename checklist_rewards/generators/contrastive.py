"""The contrastive generator: questions that distinguish better responses from worse ones.

The placeholders of the prompt determine which responses are compared:

- `{candidates}` (RLCF, arXiv:2507.18624): unranked candidates. If a request has none, they are first sampled from one
  or several weaker models and kept in the store.
- `{responses}` (OpenRubrics, arXiv:2510.07743): responses ranked best first. They must be given with the request.
- `{chosen}` and `{rejected}` (OpenRubrics): a better and a worse response. They must be given with the request.

A chosen and a rejected response can also be used as two candidates or as a ranking of two. Responses are compared by
their answers; a candidate without one (cut in its thought, empty) is left out.

If a candidate cannot be sampled, or none has an answer, the request fails. The checklist is not written from the
remaining candidates, because a rerun would then give a different one. Everything else is as in `direct.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Unpack

from pydantic import BaseModel
from typing_extensions import override

from checklist_rewards.backends import Engine, Messages, Progress, Sampling
from checklist_rewards.backends.models import UNNAMED
from checklist_rewards.backends.replies import NoReply, sample_replies, target_of
from checklist_rewards.chat import CompletionReader
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import GenerationError, PromptError, SampleError
from checklist_rewards.generators.base import Request
from checklist_rewards.generators.direct import DirectGenerator
from checklist_rewards.generators.shapes import WeightedQuestions
from checklist_rewards.images import images_in
from checklist_rewards.prompts import PromptTemplate
from checklist_rewards.scores.reasons import Reason, Unanswered
from checklist_rewards.validation import whole_number
from checklist_rewards.writer import Writer, WriterKwargs

DEFAULT_PROMPT = "generators/rlcf_candidate"
_READER = CompletionReader()
ONE_MODEL_TEMPERATURE, SEVERAL_MODELS_TEMPERATURE = 0.9, 0.7
CANDIDATE_TOKENS = 1024
"""Tokens per candidate. Truncated candidates are used if they have an answer."""


class ContrastiveGenerator(DirectGenerator):
    """Writes questions that distinguish responses of different quality.

    Args:
        model, prompt, shape, min_items, max_items, constraints: see [`DirectGenerator`]. The defaults follow RLCF.
        candidate_models (sequence of `str` or [`Engine`], *optional*): models that write candidates for requests
            without any: a single model writes `num_candidates` at temperature 0.9, several models write one each at
            0.7. Names are resolved with the same `backend` and `base_url` as `model`.
        num_candidates (`int`, *optional*, defaults to `4`): number of candidates from a single model.
        **settings: the other fields of [`Writer`]; `writing` has the defaults.
    """

    writing: ClassVar[WriterKwargs] = {"temperature": 0.0, "max_tokens": 1024, "max_attempts": 3}

    def __init__(
        self,
        model: str | Engine | Writer = UNNAMED,
        *,
        prompt: str | Path | PromptTemplate = DEFAULT_PROMPT,
        shape: type[BaseModel] | None = WeightedQuestions,
        min_items: int = 1,
        max_items: int = 7,
        candidate_models: Sequence[str | Engine] = (),
        num_candidates: int = 4,
        constraints: bool = False,
        **settings: Unpack[WriterKwargs],
    ):
        super().__init__(
            model,
            prompt=prompt,
            shape=shape,
            min_items=min_items,
            max_items=max_items,
            constraints=constraints,
            **settings,
        )
        self.needs = _needs(self.prompt)
        named = [candidate_models] if isinstance(candidate_models, str | Engine) else candidate_models
        # A backend object serves a single model, so the names of other models are resolved without it.
        where = self.engine if isinstance(self.engine.backend, str) else Engine()
        self.candidate_engines = [m if isinstance(m, Engine) else where.named(m) for m in named]
        whole_number("num_candidates", num_candidates)
        several = len(self.candidate_engines) > 1
        temperature, count = (SEVERAL_MODELS_TEMPERATURE, 1) if several else (ONE_MODEL_TEMPERATURE, num_candidates)
        self.candidate_sampling = Sampling(CANDIDATE_TOKENS, temperature, n=count, seed=self.writer.sampling.seed)

    def validate(self) -> None:
        """Check that all models exist, without loading them. Raises [`ModelError`]."""
        super().validate()
        for engine in self.candidate_engines:
            _ = engine.identity

    def check_request(self, request: str | Request, where: str) -> Request:
        """As [`DirectGenerator.check_request`]; also checks for the responses that the prompt needs."""
        request = super().check_request(request, where)
        if self.needs == "pair":
            if request.chosen is None:
                raise SampleError(f"{where}: the prompt {self.prompt.name} needs a chosen and a rejected response.")
            return request
        candidates = _candidates(request)
        if self.needs == "ranked" and len(candidates) < 2:
            raise SampleError(
                f"{where}: the prompt {self.prompt.name} needs at least two candidates, ranked, best first; "
                f"got {len(candidates)}."
            )
        if not candidates and not self.candidate_engines:
            raise SampleError(
                f"{where}: the request has neither candidates nor a chosen and a rejected response; give one of them, "
                "or set candidate_models to sample candidates."
            )
        for engine in () if candidates else self.candidate_engines:
            engine.check_images(images_in(request.history, request.input), f"{where}: the input")
        return request

    @override
    def write_batch(
        self, requests: Sequence[Request], progress: Progress | None = None
    ) -> list[Checklist | GenerationError]:
        if self.needs == "pair":
            answers = [replace(r, chosen=_answer(r.chosen), rejected=_answer(r.rejected)) for r in requests]
            return super().write_batch(answers, progress)
        found: list[Sequence[str] | GenerationError] = [_candidates(request) for request in requests]
        bare = [index for index, candidates in enumerate(found) if not candidates]
        for index, sampled in zip(bare, self._sample([requests[index] for index in bare]), strict=True):
            found[index] = sampled
        complete = {
            index: replace(request, candidates=candidates)
            for index, (request, candidates) in enumerate(zip(requests, found, strict=True))
            if not isinstance(candidates, GenerationError)
        }
        if progress is not None and len(complete) < len(found):
            progress(len(found) - len(complete))
        written = super().write_batch(list(complete.values()), progress)
        failed = {index: error for index, error in enumerate(found) if isinstance(error, GenerationError)}
        results = dict(zip(complete, written, strict=True)) | failed
        return [results[index] for index in range(len(found))]

    def _sample(self, requests: Sequence[Request]) -> list[tuple[str, ...] | GenerationError]:
        if not requests:
            return []
        prompts = [_plain(request) for request in requests]
        by_model = [
            sample_replies(e, prompts, self.candidate_sampling, self.writer.replies) for e in self.candidate_engines
        ]
        results: list[tuple[str, ...] | GenerationError] = []
        for of_request in zip(*by_model, strict=True):
            named = [(e.model, r) for e, rs in zip(self.candidate_engines, of_request, strict=True) for r in rs]
            lost = [
                NoReply(reply.unanswered or Unanswered(Reason.BACKEND_ERROR), missing=f"{model} gave no candidate")
                for model, reply in named
                if reply.text is None
            ]
            answers = [(model, target_of(reply)) for model, reply in named if reply.text is not None]
            texts = dict.fromkeys(answer.text for _, answer in answers if answer.has_answer)
            if lost or texts:
                results.append(lost[0] if lost else tuple(texts))
            else:
                states = ", ".join(dict.fromkeys(f"{model}: {answer.state}" for model, answer in answers))
                results.append(GenerationError(f"no sampled candidate has an answer ({states})."))
        return results


def _needs(prompt: PromptTemplate) -> str:
    """The responses that a prompt needs: "pair", "ranked" or "candidates"."""
    fields = prompt.placeholders
    if {"chosen", "rejected"} <= fields:
        return "pair"
    if "responses" in fields:
        return "ranked"
    if "candidates" in fields:
        return "candidates"
    raise PromptError(
        f"{prompt.name}: a contrastive prompt needs {{candidates}}, or {{responses}} (ranked), or both {{chosen}} and "
        "{rejected}."
    )


def _candidates(request: Request) -> Sequence[str]:
    """The answers of the candidates of a request. Without any, a chosen and a rejected response are the candidates."""
    texts = request.candidates
    if not texts and request.chosen is not None and request.rejected is not None:
        texts = (request.chosen, request.rejected)
    answers = [_READER.read(text) for text in texts]
    return tuple(answer.text for answer in answers if answer.has_answer)


def _answer(response: str | None) -> str | None:
    return None if response is None else _READER.read(response).text


def _plain(request: Request) -> Messages:
    """The request as a plain user message, without any mention of checklists."""
    parts = (request.history, request.context, request.input)
    return [{"role": "user", "content": "\n\n".join(part for part in parts if part)}]

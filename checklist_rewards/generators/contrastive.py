"""The contrastive generator: questions that tell better responses from worse ones.

What is compared depends on the prompt. One that speaks of `{candidates}` (RLCF, arXiv:2507.18624) is shown
those of the request; a request without any gets them sampled from one or several weaker models first, through the
store like everything else. One that speaks of `{responses}` wants them ranked, best first, and one of `{chosen}` and
`{rejected}` wants just these two (both OpenRubrics, arXiv:2510.07743): those are always given, since a sample has no
rank. A chosen and a rejected response also serve as candidates or as a ranking of two.

A candidate that cannot be had costs its request, with the model and the reason named; the checklist is not written
from the others, because a rerun would then write another one. Everything after that is as in `direct.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel

from checklist_rewards.backends import Backend, Engine, Messages, Progress, Sampling
from checklist_rewards.chat import strip_thinking
from checklist_rewards.checklists import Checklist
from checklist_rewards.errors import GenerationError, PromptError, SampleError
from checklist_rewards.files.store import Store
from checklist_rewards.generators.base import Request, check_numbers
from checklist_rewards.generators.direct import DirectGenerator
from checklist_rewards.generators.shapes import WeightedQuestions
from checklist_rewards.prompts import PromptTemplate
from checklist_rewards.replies import sample_replies

DEFAULT_PROMPT = "generators/rlcf_candidate"
ONE_MODEL_TEMPERATURE, SEVERAL_MODELS_TEMPERATURE = 0.9, 0.7


class ContrastiveGenerator(DirectGenerator):
    """Asks a model for the questions that tell responses of differing quality apart.

    Args:
        model, backend, base_url, prompt, shape, min_items, max_items, temperature, max_tokens, max_attempts, seed,
            store: see [`DirectGenerator`]; the defaults are those of RLCF.
        candidate_models (sequence of `str` or [`Engine`], *optional*): who writes the candidates of a request that has
            none: one model several, or several models one each. A name is looked for where `model` is (`backend`,
            `base_url`).
        num_candidates (`int`, *optional*, defaults to `4`): how many one model writes.
        candidate_temperature (`float`, *optional*): of their sampling; 0.9 for one model, 0.7 for several.
        candidate_max_tokens (`int`, *optional*, defaults to `1024`): of one candidate. One that is cut off is used.

    Raises:
        ChecklistRewardsError: one sentence, for any argument that cannot be used.
    """

    def __init__(
        self,
        model: str | Engine = "pocket",
        *,
        backend: str | Backend = "auto",
        base_url: str | None = None,
        prompt: str | Path | PromptTemplate = DEFAULT_PROMPT,
        shape: type[BaseModel] | None = WeightedQuestions,
        min_items: int = 1,
        max_items: int = 7,
        temperature: float = 0.0,
        max_tokens: int = 1024,
        max_attempts: int = 3,
        seed: int = 0,
        store: bool | str | Path | Store = True,
        candidate_models: Sequence[str | Engine] = (),
        num_candidates: int = 4,
        candidate_temperature: float | None = None,
        candidate_max_tokens: int = 1024,
    ):
        super().__init__(
            model,
            backend=backend,
            base_url=base_url,
            prompt=prompt,
            shape=shape,
            min_items=min_items,
            max_items=max_items,
            temperature=temperature,
            max_tokens=max_tokens,
            max_attempts=max_attempts,
            seed=seed,
            store=store,
        )
        self.needs = _needs(self.prompt)
        named = [candidate_models] if isinstance(candidate_models, str | Engine) else candidate_models
        # An engine that was handed over is one model; a name of another is looked for among all engines.
        where = self.engine if isinstance(self.engine.backend, str) else Engine()
        self.candidate_engines = [m if isinstance(m, Engine) else where.named(m) for m in named]
        several = len(self.candidate_engines) > 1
        usual = SEVERAL_MODELS_TEMPERATURE if several else ONE_MODEL_TEMPERATURE
        warmth = usual if candidate_temperature is None else candidate_temperature
        check_numbers(warmth, num_candidates=num_candidates, candidate_max_tokens=candidate_max_tokens)
        if warmth == 0 and not several and num_candidates > 1:
            raise SampleError(
                f"candidate_temperature=0 is not allowed with num_candidates={num_candidates} of one model: "
                "they would all be the same."
            )
        count = 1 if several else num_candidates
        self.candidate_sampling = Sampling(candidate_max_tokens, warmth, n=count, seed=seed)

    def check(self) -> None:
        """Refuse models that are not there. Raises [`ModelError`]."""
        super().check()
        for engine in self.candidate_engines:
            _ = engine.identity

    def check_request(self, request: str | Request, where: str) -> Request:
        """As [`DirectGenerator.check_request`], and there must be something to contrast."""
        request = super().check_request(request, where)
        paired = request.chosen is not None
        if self.needs == "pair":
            if not paired:
                raise SampleError(f"{where}: the prompt {self.prompt.name} needs a chosen and a rejected response.")
            return request
        if not request.candidates and request.chosen is not None and request.rejected is not None:
            request = replace(request, candidates=(request.chosen, request.rejected))
        if self.needs == "ranked" and len(request.candidates) < 2:
            raise SampleError(
                f"{where}: the prompt {self.prompt.name} needs at least two candidates, ranked, best first; "
                f"got {len(request.candidates)}."
            )
        if not request.candidates and not self.candidate_engines:
            raise SampleError(
                f"{where}: there are no candidates, no chosen and rejected response, and no candidate_models "
                "to sample candidates from."
            )
        return request

    def _write(self, requests: Sequence[Request], progress: Progress | None) -> list[Checklist | GenerationError]:
        bare = [] if self.needs == "pair" else [i for i, request in enumerate(requests) if not request.candidates]
        sampled = dict(zip(bare, self._sample([requests[i] for i in bare]), strict=True))
        results: dict[int, Checklist | GenerationError] = {}
        complete: dict[int, Request] = {}
        for index, request in enumerate(requests):
            candidates = sampled.get(index, request.candidates)
            if isinstance(candidates, GenerationError):
                results[index] = candidates
            else:
                complete[index] = replace(request, candidates=candidates)
        if results and progress is not None:
            progress(len(results))
        results.update(zip(complete, super()._write(list(complete.values()), progress), strict=True))
        return [results[index] for index in range(len(requests))]

    def _sample(self, requests: Sequence[Request]) -> list[tuple[str, ...] | GenerationError]:
        if not requests:
            return []
        prompts = [_plain(request) for request in requests]
        by_model = [sample_replies(e, prompts, self.candidate_sampling, self.store) for e in self.candidate_engines]
        found: list[tuple[str, ...] | GenerationError] = []
        for of_request in zip(*by_model, strict=True):
            named = [(e.model, r) for e, rs in zip(self.candidate_engines, of_request, strict=True) for r in rs]
            lost = [f"{model} gave no candidate: {reply.unanswered}." for model, reply in named if reply.text is None]
            texts = dict.fromkeys(strip_thinking(reply.text) for _, reply in named if reply.text is not None)
            found.append(GenerationError(lost[0]) if lost else tuple(texts))
        return found


def _needs(prompt: PromptTemplate) -> str:
    """What a prompt compares: "pair", "ranked" or "candidates"."""
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


def _plain(request: Request) -> Messages:
    """The request as a model would get it that knows nothing of checklists."""
    parts = (request.history, request.context, request.input)
    return [{"role": "user", "content": "\n\n".join(part for part in parts if part)}]

"""Every number and choice of the corrective pass, with its default. Thresholds of the shipped evaluators live here too."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from crag_middleware.errors import ConfigError
from crag_middleware.types import Thresholds, VerdictRule

DEFAULT_MODEL = "deepseek:deepseek-flash"
"""The chat model that grades and rewrites when none is given; the environment variable `CRAG_MODEL` overrides it."""

CHAT_THRESHOLDS = Thresholds(lower=0.5, upper=0.9)
"""For probabilities that a chat model states in words: relevant above 0.9, incorrect below 0.5."""

MAX_STRIPS = 8
"""How many strips a refiner picks of one passage at most, if nobody says otherwise."""

EMBEDDING_THRESHOLDS = Thresholds(lower=0.2, upper=0.5)
"""For `EmbeddingEvaluator` on embeddings without a calibration of their own: about where the calibrations of ours cut, before their maps."""

DEFAULT_CONFIDENCE = 0.92
"""Stored trust in a tenant's own documents, so that a floor of 0.9 keeps them."""

Fraction = Annotated[float, Field(ge=0, le=1)]
Text = Annotated[str, Field(min_length=1, max_length=4000, pattern=r"\S")]
Days = Annotated[float, Field(gt=0, le=36_500)]
QueryVariant = Literal["hypothetical", "keywords"]
Seconds = Annotated[float, Field(gt=0, le=600)]


class CRAGSettings(BaseModel):
    """How one middleware instance behaves. Frozen; unknown names and values out of range are refused with a `ConfigError`.

    Attributes:
        lower: Overrides the lower threshold for passages: calibrated probabilities below it are `incorrect`.
        upper: Overrides the upper threshold for passages: calibrated probabilities above it are `relevant`.
        verdict_rule: What the verdict is cut from: `paper`, any passage relevant; `set`, P(the passages together answer), which needs a calibration
            that tells it, and is cut by that calibration's own thresholds.
        top_k: Passages kept of all that was found, and graded.
        recall_k: Passages each route brings to the merge, if it does not say otherwise; never fewer than `top_k`.
        candidates: Candidates each search leg brings into the fusion.
        rrf_k: The constant of reciprocal rank fusion (Cormack et al., SIGIR 2009, doi:10.1145/1571941.1572114).
        near_duplicate: Cosine similarity from which two passages of one meaning are copies (docs/merging.md says what it means for which embeddings); None to
            compare by text only.
        half_life_days: After how many days a passage of the knowledge counts half; None for never. A route has its own.
        half_lives_days: The same by document type (`doc_type` in the metadata), over any route's.
        mmr_lambda: Relevance against variety when the final passages are chosen, from 0 (variety) to 1 (the plain order).
        neighbours: How many chunks before and after a kept passage come along with it, as far as the budget goes.
        min_confidence: Floor on the stored confidence: rows must lie above it. None for no floor.
        filter: Further conditions on rows as data, `{field: value}` or `{field: {op: value}}`; it can only narrow the tenant's rows.
        explain: Adds each leg's rank and score to the receipt, at the cost of one more search a leg.
        standalone_questions: Whether a question with history is first made understandable on its own (a model call).
        history_messages: How many earlier texts the rewriter sees.
        max_question_chars: Longer questions are shortened to their question sentences, head and tail before anything is searched.
        decompose: Whether a compound question is also searched as its parts, three at most (a model call).
        query_variants: What else is searched beside the question: a `hypothetical` passage that answers it, its `keywords` (a model call each).
        max_rewrites: Rounds of "rewrite and retrieve again" after an `incorrect` verdict.
        web_results: How many web results are asked for.
        web_keywords: Whether the rewriter drafts the web query from the question, if it can: a model call beside the grading of passages that look poor.
        web_options: Passed to the web search as it is.
        web_on_evaluator_failure: Whether the web is searched when nothing could be graded.
        web_on_retrieval_failure: Whether the web is searched when the knowledge could not be searched.
        max_strips: Strips that the built-in refiner picks of one passage at most; what must come along with them is not counted.
        max_context_tokens: Hard limit for the injected block, rules included, by the middleware's token counter.
        order: Best source first, or from both `ends` inwards with the worst in the middle. Citation numbers follow the rank either way.
        position: Where the block goes: into a copy of the turn's human message, or after the system prompt.
        language: Language of rules and notes; `auto` follows the question.
        receipt_detail: `injected` keeps all passage text that was not injected out of the receipt; `full` adds it and the evaluator's reasons.
        verify: Whether citations of the answer are checked and mended, and, with a claim checker, its claims. Without it the model's answer is left alone.
        unknown_citations: Whether citations that no source of the turn has are removed, or stay and are told (`flag`).
        add_citations: Whether a statement that cites nothing is given the citation that clearly supports it; needs a claim checker.
        on_unsupported: What becomes of an answer with claims that nothing supports: it stays and says so in receipt and metadata (`flag`), the model writes
            another one (`repair`), their sentences are left out (`drop`), or a refusal takes its place (`refuse`).
        max_repairs: Drafts asked for in one turn, beside the first, with `repair`.
        after_repair: What becomes of the last draft if it still has unsupported claims.
        when_no_evidence: What the agent does when nothing was found: what it likes, being told so (`agent`), answers with a visible label (`general`), or is
            kept from answering (`refuse`) unless a tool brought something.
        refusal_text: What a refusal says; None for our own words, in the turn's language.
        general_label: What is put under an answer from general knowledge; None for our own words.
        rules: What the model is told beside the evidence, in place of our own rules; None for those.
        max_temperature: Cap on the model's temperature in turns with evidence; None to leave it alone.
        save_evidence: Whether block and receipt are saved in checkpoints, and text of passages in the metadata of answers. Without it an interrupted turn
            runs the plan once more when resumed.
        max_model_calls: Model calls that the middleware spends in one turn at most, repairs included; optional ones are left out first (docs/budget.md).
            None for no limit.
        max_model_tokens: Tokens of prompt and reply after which the middleware begins no further model call in a turn. None for no limit.
        turn_timeout_s: Time that the middleware spends in one turn at most, in seconds, corrective pass and checks of the answer together; each step gets what
            is left of it. None for the steps' own deadlines only.
        rerank_timeout_s: Deadline of one reranking, in seconds.
        retrieve_timeout_s: Deadline of one search of the knowledge, in seconds.
        grade_timeout_s: Deadline of one grading, in seconds.
        rewrite_timeout_s: Deadline of one rewriting, in seconds.
        refine_timeout_s: Deadline of one refinement, in seconds.
        web_timeout_s: Deadline of one web search, in seconds.
        claim_timeout_s: Deadline of one check of an answer's claims, in seconds.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)

    lower: Fraction | None = None
    upper: Fraction | None = None
    verdict_rule: VerdictRule = "paper"
    top_k: int = Field(default=5, ge=1, le=100)
    recall_k: int = Field(default=20, ge=1, le=200)
    candidates: int = Field(default=20, ge=1, le=1000)
    rrf_k: int = Field(default=60, ge=1, le=16383)
    near_duplicate: Fraction | None = 0.95
    half_life_days: Days | None = None
    half_lives_days: Mapping[str, Days] = Field(default_factory=dict)
    mmr_lambda: Fraction = 1.0
    neighbours: int = Field(default=0, ge=0, le=5)
    min_confidence: Fraction | None = None
    filter: Mapping[str, Any] | None = None
    explain: bool = False
    standalone_questions: bool = True
    history_messages: int = Field(default=6, ge=0, le=50)
    max_question_chars: int = Field(default=1000, ge=100, le=8000)
    decompose: bool = False
    query_variants: tuple[QueryVariant, ...] = ()
    max_rewrites: int = Field(default=1, ge=0, le=3)
    web_results: int = Field(default=3, ge=1, le=20)
    web_keywords: bool = True
    web_options: Mapping[str, Any] = Field(default_factory=dict)
    web_on_evaluator_failure: bool = False
    web_on_retrieval_failure: bool = False
    max_strips: int = Field(default=MAX_STRIPS, ge=1, le=50)
    max_context_tokens: int = Field(default=2000, ge=256, le=200_000)
    order: Literal["rank", "ends"] = "rank"
    position: Literal["human", "system"] = "human"
    language: Literal["auto", "en", "zh"] = "auto"
    receipt_detail: Literal["injected", "full"] = "injected"
    verify: bool = True
    unknown_citations: Literal["remove", "flag"] = "remove"
    add_citations: bool = False
    on_unsupported: Literal["flag", "repair", "drop", "refuse"] = "flag"
    max_repairs: int = Field(default=1, ge=0, le=3)
    after_repair: Literal["flag", "refuse"] = "flag"
    when_no_evidence: Literal["agent", "general", "refuse"] = "agent"
    refusal_text: Text | None = None
    general_label: Text | None = None
    rules: Text | None = None
    max_temperature: float | None = Field(default=None, ge=0, le=2)
    save_evidence: bool = True
    max_model_calls: int | None = Field(default=None, ge=1, le=100)
    max_model_tokens: int | None = Field(default=None, ge=1, le=10_000_000)
    turn_timeout_s: Seconds | None = 60.0
    rerank_timeout_s: Seconds = 5.0
    retrieve_timeout_s: Seconds = 10.0
    grade_timeout_s: Seconds = 30.0
    rewrite_timeout_s: Seconds = 15.0
    refine_timeout_s: Seconds = 10.0
    web_timeout_s: Seconds = 10.0
    claim_timeout_s: Seconds = 30.0

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(_explain(error, values)) from None

    @model_validator(mode="after")
    def _ordered(self) -> "CRAGSettings":
        if self.lower is not None and self.upper is not None and self.lower > self.upper:
            msg = f"`lower` must not be above `upper`, got {self.lower} and {self.upper}"
            raise ValueError(msg)
        return self

    def thresholds(self, own: Thresholds) -> Thresholds:
        """The thresholds in force: those of a calibration or an evaluator, with this instance's overrides.

        Raises:
            ConfigError: An override crosses the other threshold.
        """
        lower = own.lower if self.lower is None else self.lower
        upper = own.upper if self.upper is None else self.upper
        if lower > upper:
            msg = f"the thresholds in force must be in order, got lower {lower} above upper {upper}; set both `lower` and `upper`"
            raise ConfigError(msg)
        return Thresholds(lower, upper)


_PRIVATE = frozenset({"filter", "web_options", "rules", "refusal_text", "general_label"})
"""Settings whose values may hold what is nobody else's business."""


def _explain(error: ValidationError, values: Mapping[str, object]) -> str:
    """One line for each wrong setting: what was wrong, what was got, what is known."""
    lines = []
    for problem in error.errors():
        name = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            lines.append(f"`{name}` is no setting; the settings are: {', '.join(sorted(CRAGSettings.model_fields))}")
        elif name in values:
            got = type(values[name]).__name__ if name in _PRIVATE else repr(values[name])
            lines.append(f"`{name}`: {problem['msg']}, got {got}")
        else:
            lines.append(problem["msg"])
    return "; ".join(lines)

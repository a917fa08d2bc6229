"""The values that travel between stages. All are frozen and hold tuples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Origin = Literal["knowledge", "web"]
"""Where a passage comes from: the tenant's own knowledge, or the web."""

Label = Literal["relevant", "ambiguous", "incorrect", "ungraded"]
"""One passage's relevance to the question; `ungraded` means that the evaluator could not say."""

Verdict = Literal["relevant", "ambiguous", "incorrect"]
"""The turn's decision."""

VerdictRule = Literal["paper", "set"]
"""What the verdict is cut from: `paper`, from each passage (any relevant); `set`, from P(the passages together answer)."""

Language = Literal["en", "zh"]
"""The language of prompts and notes."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A place in one list of results: who found a passage, asked what, and as which.

    Attributes:
        route: The route's name.
        query: Which of the turn's queries was asked, counted from 0 in the order of `Evidence.queries`.
        rank: Place in the list, counted from 1.
        id: The passage's id there.
        score: The route's own score; higher is better, comparable within one list only. None if it gives none.
    """

    route: str
    query: int
    rank: int
    id: str
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Passage:
    """One retrieved chunk of text.

    Attributes:
        id: Unique within a turn and an origin.
        text: The chunk, unchanged.
        source: Where the document lies: a path, a name, a host.
        title: The document's title, if known.
        url: The document's address, if it has one.
        origin: `knowledge` or `web`.
        score: The retriever's own score; higher is better, comparable within one result list only. None if it gives none.
        rank: Place in the result list, counted from 1; 0 if not ranked.
        confidence: Stored trust in the text, in [0, 1]; None if unknown.
        created_at: When the text was written or stored, in milliseconds since the epoch; None if unknown.
        evidence_score: How far its source is to be trusted, in [0, 1], by where it comes from; None if nobody said.
        injection_score: How much of it reads like orders to a model, in [0, 1]; 0 for none.
        hits: Every place in which it, or a copy of it, was found in this turn; empty before the merge.
        fused_score: What the merge made of the hits; higher is better, comparable within one turn only. None before it.
        rerank_score: The reranker's score; higher is better, comparable within one turn only. None if it was not reranked.
        vector: Its dense vector, of length 1; None if unknown. Vectors of one turn are of one embedding model.
        metadata: Anything else, JSON-like. `doc_id`, `version`, `section`, `page`, `doc_type`, `chunk_index` (its place in the document, from 0), `start`
            and `end` (where it lies in the document's text, in characters) are understood where present.
    """

    id: str
    text: str
    source: str = ""
    title: str = ""
    url: str = ""
    origin: Origin = "knowledge"
    score: float | None = None
    rank: int = 0
    confidence: float | None = None
    created_at: int | None = None
    evidence_score: float | None = None
    injection_score: float = 0.0
    hits: tuple[Hit, ...] = ()
    fused_score: float | None = None
    rerank_score: float | None = None
    vector: Sequence[float] | None = field(default=None, repr=False, compare=False)
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Grade:
    """One passage's relevance to the question.

    Attributes:
        passage_id: The graded passage.
        probability: P(the passage answers the question), in [0, 1]; None if it could not be graded.
        label: The band the probability falls into.
        reason: A few words of the evaluator; may quote the passage, so it is private.
        inconsistent: The evaluator's label and number disagreed; the label was believed.
        raw: The evaluator's own number, before any calibration; an evaluator leaves it alone.
    """

    passage_id: str
    probability: float | None
    label: Label
    reason: str = ""
    inconsistent: bool = False
    raw: float | None = None


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Where an evaluator's probabilities are cut: below `lower` incorrect, above `upper` relevant, ambiguous between and on both.

    Source: the three actions of CRAG, Yan et al., arXiv 2401.15884, section 4.3.
    """

    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class EvaluatorKey:
    """Whose probabilities these are: what a calibration is fitted to, and belongs to.

    Attributes:
        evaluator: The evaluator's class name.
        model: The model behind it; empty if it has none, or it is unknown.
        prompt: The version of its prompt, or of its features; empty if it has neither.
    """

    evaluator: str
    model: str = ""
    prompt: str = ""


StripReason = Literal["chosen", "context", "limits", "whole"]
"""Why a strip was kept: it bears on the question; a chosen one can't be understood without it; it takes something back from one that is kept; or its
passage was kept whole, since nothing in it could be chosen."""


@dataclass(frozen=True, slots=True)
class Strip:
    """One sentence-like unit of a passage: `passage.text[start:end] == text`. Two at the same place are equal, whatever was thought of them.

    Attributes:
        text: The unit, word for word.
        start: Where it begins in the passage.
        end: Where it ends.
        worth: How much it bears on the question: higher is better, comparable within one turn only; None if the refiner does not say.
        why: Why it was kept.
        unit: Strips of a passage with the same number are kept or left out together; None for one that stands alone.
    """

    text: str
    start: int
    end: int
    worth: float | None = field(default=None, compare=False)
    why: StripReason = field(default="chosen", compare=False)
    unit: int | None = field(default=None, compare=False)


Memo = dict[Any, Any]
"""What the ports of one turn remember for each other, such as a text's vector; a new one each turn. Ports may use it from several threads at once."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One earlier message of the conversation, as the rewriter sees it."""

    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What the user asked in this turn.

    Attributes:
        text: The user's words, without block markup or our own fence.
        message_id: The id of the human message; empty if it has none.
        history: Earlier user and assistant texts, oldest first.
        skip: Why nothing is retrieved for it (`empty`, `no_text`, `greeting`; `not_reached`: the turn ended before its first model call), or None.
    """

    text: str
    message_id: str = ""
    history: tuple[Exchange, ...] = ()
    skip: Literal["empty", "no_text", "greeting", "not_reached"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """A passage with its grade."""

    passage: Passage
    grade: Grade


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A numbered piece of evidence: what is shown to the model of one passage.

    Attributes:
        number: The citation number, counted from 1 over the whole turn.
        graded: The passage it comes from, with its grade.
        strips: What was kept of it, in document order; never empty.
    """

    number: int
    graded: Graded
    strips: tuple[Strip, ...]


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a conflict.

    Attributes:
        numbers: The citation numbers of the sources that say it, in order; never empty.
        says: The value, or the word, as the first of them writes it.
    """

    numbers: tuple[int, ...]
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """What sources of one turn contradict each other in.

    Attributes:
        kind: They tell another `value`, or the `opposite`.
        sides: At least two, that of the lowest number first.
        newer: The number of a source that is clearly newer than all of the other sides; None if there is none.
        trusted: The number of one that is clearly more trusted than all of the other sides; None if there is none.
        told: Whether there was room to tell the model.
    """

    kind: Literal["value", "opposite"]
    sides: tuple[Side, ...]
    newer: int | None = None
    trusted: int | None = None
    told: bool = True


ClaimLabel = Literal["supported", "contradicted", "not_mentioned"]
"""What the evidence says of a claim."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One checkable statement of an answer: `answer[start:end] == text`.

    Attributes:
        text: The statement, word for word, citations included.
        start: Where it begins in the answer.
        end: Where it ends.
        cited: The numbers of the sources that it cites, in order.
    """

    text: str
    start: int
    end: int
    cited: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Ground:
    """One piece of what an answer may rest on.

    Attributes:
        text: What it says: a strip of a source, a tool's result, a message of the user.
        kind: Where it comes from.
        number: The source's citation number; None for what is no source.
    """

    text: str
    kind: Literal["source", "tool", "user"] = "source"
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Checked:
    """What a checker thinks of one claim.

    Attributes:
        label: What the evidence says of it.
        probability: P(supported), in [0, 1]; None if the checker could not say.
        decided_by: Which ground decides, by its place in the list that the checker was given; None if none does.
        reason: A short code, such as `number`, `negation`, `coverage`.
    """

    label: ClaimLabel
    probability: float | None
    decided_by: int | None = None
    reason: str = ""

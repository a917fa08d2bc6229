"""The schemas of labelled questions that are understood, recognised by their keys; all others are turned into the first, `Labelled`.

One's own data is written as `Labelled`, one object a line:

    {"question": "...", "answerable": true, "passages": [{"text": "...", "label": "relevant"}, {"text": "...", "label": "incorrect"}]}

Keys that are not named here are ignored.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, StrictBool, StringConstraints, model_validator

Contexts = Mapping[str, str]
"""Passages that lie in a file beside the data, by name."""


def _encodable(text: str) -> str:
    """The text, which must have no half of a surrogate pair: JSON can hold one, and nothing else can."""
    text.encode()
    return text


Text = Annotated[str, StringConstraints(strict=True), AfterValidator(_encodable)]
Name = Annotated[str, StringConstraints(strict=True, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
"""Without control characters, since it is shown in terminals."""

Words = Annotated[str, StringConstraints(strict=True, pattern=r"\S")]
Label = Literal["relevant", "incorrect", "unselected", "counterfactual"]


class _Part(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, hide_input_in_errors=True)


class LabelledPassage(_Part):
    """A passage that is labelled or not.

    Attributes:
        id: Unique within the question; its number, counted from 1, if not given.
        title: The document's title.
        text: What is graded.
        label: `relevant` or true, `incorrect` or false; null or `unselected` where nobody said. `counterfactual` passages are left out: theirs is the
            answer with a wrong word in it, which tests conflicts and not relevance.
    """

    id: Text = ""
    title: Text = ""
    text: Text
    label: Label | StrictBool | None = None


class _Line(_Part):
    id: Name = ""
    lang: Name = ""
    source: Name = ""


class Labelled(_Line):
    """A question with its passages.

    Attributes:
        id: Unique in a run; made of the file's name and the line's number if not given.
        lang: The language, under any name; told by the question's script if not given.
        source: The data set; the file's name if not given.
        question: What is asked.
        answerable: Whether the passages together answer it; if not given, true with a relevant passage, false if all are incorrect, else unknown.
        passages: At least one.
        weak: The labels were not given passage by passage by a person.
    """

    question: Words
    answerable: StrictBool | None = None
    passages: tuple[LabelledPassage, ...]
    weak: StrictBool = False

    @model_validator(mode="after")
    def _sound(self) -> "Labelled":
        ids = [passage.id or str(number) for number, passage in enumerate(self.passages, 1)]
        if len(set(ids)) < len(ids):
            msg = "the ids of a question's passages must differ"
            raise ValueError(msg)
        if all(passage.label == "counterfactual" for passage in self.passages):
            msg = "`passages` must hold one that is not counterfactual"
            raise ValueError(msg)
        return self

    def questions(self, contexts: Contexts) -> Iterator["Labelled"]:
        """The question itself."""
        yield self


class _Sentences(_Part):
    title: Text = ""
    sentences: tuple[Text, ...]
    gold: tuple[int, ...] = ()

    def passage(self, *, lang: str, label: Label) -> LabelledPassage:
        joint = "" if lang.startswith("zh") else " "
        return LabelledPassage(title=self.title, text=joint.join(s.strip() for s in self.sentences), label=label)


class Evidence(_Line):
    """A question with passages cut into sentences: those with a `gold` sentence, one that bears on the answer, are relevant."""

    question: Words
    passages: tuple[_Sentences, ...]

    def questions(self, contexts: Contexts) -> Iterator[Labelled]:
        """The question with its passages in one piece each."""
        passages = tuple(p.passage(lang=self.lang, label="relevant" if p.gold else "incorrect") for p in self.passages)
        yield Labelled(id=self.id, lang=self.lang, source=self.source, question=self.question, passages=passages)


class PointedEvidence(_Line):
    """A question about a passage in another file. Without a `gold` sentence nothing is known of it: it is left out, as one without words is."""

    question: Text
    ctx: Text
    gold: tuple[int, ...]

    def questions(self, contexts: Contexts) -> Iterator[Labelled]:
        """The question with that passage.

        Raises:
            KeyError: The passage is not there.
        """
        passage = LabelledPassage(text=contexts[self.ctx], label="relevant")
        if self.gold and self.question.strip():
            yield Labelled(id=self.id, lang=self.lang, source=self.source, question=self.question, passages=(passage,))


class ReferencedEvidence(_Line):
    """A question about a document in another file, with the sentences of it that bear on the answer, word for word."""

    question: Text
    doc_id: int | str
    refs: tuple[Text, ...]


class OneDocument(_Line, _Sentences):
    """A question with the sentences of one document that answers it or not."""

    question: Words
    answerable: StrictBool

    def questions(self, contexts: Contexts) -> Iterator[Labelled]:
        """The question with the document as its passage."""
        passage = self.passage(lang=self.lang, label="relevant" if self.answerable else "incorrect")
        yield Labelled(id=self.id, lang=self.lang, source=self.source, question=self.question, passages=(passage,))


class _Asked(_Part):
    id: Name = ""
    q: Words
    answerable: StrictBool


class _Paragraph(_Part):
    context: Text
    qas: tuple[_Asked, ...]


class Article(_Line):
    """An article's paragraphs, each with questions that it answers or not, as in SQuAD 2.0."""

    title: Text = ""
    paragraphs: tuple[_Paragraph, ...]

    def questions(self, contexts: Contexts) -> Iterator[Labelled]:
        """Each question with its paragraph as the passage."""
        for n, paragraph in enumerate(self.paragraphs, 1):
            for m, asked in enumerate(paragraph.qas, 1):
                label: Label = "relevant" if asked.answerable else "incorrect"
                passage = LabelledPassage(title=self.title, text=paragraph.context, label=label)
                name = asked.id or (f"{self.id}-{n}-{m}" if self.id else "")
                yield Labelled(id=name, lang=self.lang, source=self.source, question=asked.q, passages=(passage,))


Line = Labelled | Evidence | PointedEvidence | OneDocument | Article

KNOWN = (
    "`question` with `passages` of `text` and `label`; `question` with `passages` of `sentences` and `gold`; `question` with `ctx` and `gold`; "
    "`question` with `sentences` and `answerable`; `paragraphs` of `context` and `qas`"
)
"""What `recognise` looks for, for people."""


def recognise(value: Any) -> type[Line] | None:
    """The schema that a line's keys point to, whether or not the rest is in order; None for none."""
    match value:
        case {"question": _, "passages": [{"sentences": _}, *_]}:
            return Evidence
        case {"question": _, "passages": _}:
            return Labelled
        case {"question": _, "ctx": _, "gold": _}:
            return PointedEvidence
        case {"question": _, "sentences": _, "answerable": _}:
            return OneDocument
        case {"paragraphs": _}:
            return Article
    return None


EvidenceLine = Evidence | PointedEvidence | ReferencedEvidence

KNOWN_EVIDENCE = (
    "`question` with `passages` of `sentences` and `gold`; `question` with `ctx` and `gold`; `question` with `doc_id` and `refs`"
)
"""What `recognise_evidence` looks for, for people."""


def recognise_evidence(value: Any) -> type[EvidenceLine] | None:
    """As `recognise`, for schemas that tell which sentences bear on the answer."""
    match value:
        case {"question": _, "doc_id": _, "refs": _}:
            return ReferencedEvidence
        case {"question": _, "passages": [{"sentences": _}, *_]}:
            return Evidence
        case {"question": _, "ctx": _, "gold": _}:
            return PointedEvidence
    return None

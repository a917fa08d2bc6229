"""The lines of files with questions and the documents they are searched among, recognised by their keys. Keys that are not named here are ignored."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StrictInt, StringConstraints

from crag_middleware.evals.schemas import Name, Text, Words

Key = Annotated[str, StringConstraints(strict=True, pattern=r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$")]
"""An id: not blank, without control characters."""

_Id = Field(validation_alias=AliasChoices("id", "_id"))


class _Part(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, hide_input_in_errors=True)


class Document(_Part):
    """A document. What is stored and searched is its title and its text; one without words is known, and never found."""

    id: Annotated[Key, _Id]
    title: Text | None = None
    text: Text

    @property
    def whole(self) -> str:
        """The title and the text, unless the text begins with the title; empty without words."""
        title, text = (self.title or "").strip(), self.text.strip()
        return text if text.startswith(title) else f"{title}\n{text}".strip()


class Query(_Part):
    """A question in a file of its own, whose judgements are elsewhere."""

    id: Annotated[Key, _Id]
    text: Words


class _Line(_Part):
    id: Name = ""
    lang: Name = ""
    source: Name = ""
    question: Words


class JudgedQuestion(_Line):
    """A question with the grades of documents: above 0 is relevant, and higher is better.

    Attributes:
        id: Unique in a run; made of the file's name and the line's number if not given.
        lang: The language, under any name; told by the question's script if not given.
        source: The data set; the file's name if not given.
        question: What is asked.
        relevant: By id of a document of the same file; whatever is not named is not relevant.
    """

    relevant: Mapping[Key, StrictInt]

    @property
    def grades(self) -> Mapping[str, int]:
        """As they stand."""
        return self.relevant


class CranfieldQuestion(_Line):
    """A question of the Cranfield collection, whose codes say how relevant a document is the other way round.

    1 is a complete answer, 2 of a high degree of relevance, 3 useful, 4 of minimum interest (Cleverdon, Mills and Keen, "Factors Determining the Performance of
    Indexing Systems", 1966). The grades here are 4 to 1 in this order. -1 stands once in each question, at the paper whose author asked it, which was no
    part of the judging: it counts as not relevant, as it does with trec_eval.
    """

    qrels: Mapping[Key, StrictInt]

    @property
    def grades(self) -> Mapping[str, int]:
        """The higher, the better."""
        return {name: 5 - code if 1 <= code <= 4 else 0 for name, code in self.qrels.items()}


FileLine = Document | JudgedQuestion | CranfieldQuestion

KNOWN = "documents with `id` and `text`, and questions with `question` and `relevant`, or with `question` and `qrels`"
"""What `recognise` looks for, for people."""


def recognise(value: Any) -> type[FileLine] | None:
    """The schema that a line's keys point to, whether or not the rest is in order; None for none."""
    match value:
        case {"question": _, "relevant": _}:
            return JudgedQuestion
        case {"question": _, "qrels": _}:
            return CranfieldQuestion
        case {"question": _}:
            return None
        case {"text": _, "id": _} | {"text": _, "_id": _}:
            return Document
    return None


def recognise_query(value: Any) -> type[Query] | None:
    """As `recognise`, for a file of nothing but questions."""
    match value:
        case {"text": _, "id": _} | {"text": _, "_id": _}:
            return Query
    return None

"""When a strip says what another one has said already: word for word, and of the same thing."""

from crag_middleware.stages.company import Page


def told(title: str, page: Page, i: int) -> tuple[str, ...]:
    """What strip `i` says, and of what: the title, and the strip with all that it needs and brings along. Equal tuples say the same; white space aside.

    The same rule with another exception is another rule, and so is the same row under another header.

    Likeness is not enough: of the sentences of one subject, those that differ in a name, a number, a unit or `before` and `after` are the most alike. Where
    four fifths of the words agreed, and all numbers and negations, most pairs in HotpotQA were two facts (`Zambia is a landlocked country in Southern Africa`,
    `Botswana is a ...`), and they were less than one in a hundred of all picked strips.
    """
    around = page.leaned_on(i) | page.followed_by(i)
    return (title, *(" ".join(page.strips[j].split()) for j in (i, *sorted(around))))

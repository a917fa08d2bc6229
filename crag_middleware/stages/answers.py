"""What kind of answer a question asks for, and what in a text could be one."""

import re

from crag_middleware.stages.chinese import proper_names
from crag_middleware.stages.numbers import numbers
from crag_middleware.stages.words import terms

_MANY = (
    r"\bhow (?:many|much|long|old|often|far|tall|high|big|large|deep|wide|fast|late|early|soon)\b"
    r"|\A(?:(?!\b(?:what|which|who|whose|whom|where|why|how)\b).)*\bwhen\b"  # not: What happens when ...?
    r"|\b(?:what|which) (?:year|date|day|month|time|century|decade|age|port|percent\w*)\b"
    r"|\b(?:price|cost|fee|salary|population|length|height|size|limit|score|number of|percent\w*|deadline|release date)\b"
    r"|多少|几(?![何乎])|(?<![许很众更伦])多[长大高久远快重深宽]|什么时候|什么时间|何时|哪一?[年天日月]|年份|日期|时间|时长|期限|票房|人口|面积|比分|价格|费用|金额|数量|人数|次数|上限|排名"
)
_ASKS_NUMBER = re.compile(_MANY, re.IGNORECASE | re.DOTALL)
_NAME = re.compile(
    r"(?<![A-Za-z])[A-Z][\w'’-]*(?: (?:(?:of|the|de|van|von|al|du|la) )?[A-Z][\w'’-]*){0,5}"
    r"|[\u3400-\u9fff]{1,8}(?:·[\u3400-\u9fff]{1,8}){1,3}|《[^》]{1,30}》|“[^”]{1,20}”"
)
_HAN = re.compile(r"[\u3400-\u9fff]")


def asks_number(question: str) -> bool:
    """Whether a number, a time or an amount is asked for."""
    return _ASKS_NUMBER.search(question) is not None


def candidates(question: str, text: str) -> frozenset[str]:
    """What in the text could be the answer and stands not in the question: numbers and times if such is asked for, else names.

    Names are words with a capital, foreign names in Chinese letters, titles in quotes, and the Chinese names that jieba knows; folded. A word that says
    nothing about the topic is none, though it has a capital at the beginning of a sentence.
    """
    if asks_number(question):
        return numbers(text) - numbers(question)
    asked = question.casefold()
    found = [match.group() for match in _NAME.finditer(text) if terms(match.group())]
    if _HAN.search(text):
        found += proper_names(text)
    return frozenset(name for name in map(str.casefold, found) if name not in asked)

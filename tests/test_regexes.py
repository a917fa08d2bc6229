"""Every regular expression of the package takes time in proportion to the text: each is run on texts made of its own parts, repeated and almost matching.

Source of the idea: Davis et al., The Impact of Regular Expression Denial of Service, ESEC/FSE 2018, doi:10.1145/3236024.3236027.
"""

import ast
import functools
import importlib
import pkgutil
import re
import signal
import time
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from re import _constants as sre  # type: ignore[attr-defined]  # the parse tree has no public name
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

import pytest

import crag_middleware

BOUNDED = {
    "evals.plots.svg()": "a picture that we made",
    "knowledge.loaders.pdf._BROKEN_WORD": "two pieces of 80 characters at a seam",
    "stages.citation_marks._NOTE": "60 characters between brackets",
    "stages.citations._NAME": "40 characters before a bracket",
    "stages.claim_labels._WORDS": "a label's first 500 characters",
    "stages.claim_phrases.GREETING": "matched at a sentence's beginning only",
    "stages.claim_phrases.ORDER": "matched at a sentence's beginning only",
    "stages.claim_phrases.PREAMBLE": "matched at a sentence's beginning only",
    "stages.claim_phrases.TURN": "one sentence, of 400 characters at most",
    "stages.claims._past_opening()": "one sentence, of 400 characters at most",
    "stages.decomposing._QUOTED": "looks 1,000 characters ahead at most, in a reply of 100,000",
    "stages.disagreement._IF": "one statement, of 400 characters at most",
    "stages.disagreement._LABEL": "one statement, of 400 characters at most",
    "stages.outline._GOVERNS": "a heading, of 400 characters at most",
    "stages.personal._RULES": "a question of 8,000 characters at most, whose runs of white space are folded before",
    "stages.rewriting._MARKED": "one word of a question",
    "stages.secrets._RULES[0]": "looks 8,000 characters ahead at most",
    "stages.spoken._RULES": "a question of 8,000 characters at most, whose runs of white space are folded before",
    "stages.stops._SHUT_END": "the last 80 characters of a strip",
    "stages.stops._TAIL": "13 characters before a stop",
    "stages.values._LONG_ZH": "one numeral in Chinese characters",
    "stages.values._TRAILING": "twelve words at most",
    "stages.wrappings._PREFIX": "matched at a line's beginning only",
}
"""Patterns that would take long over a long text, and what keeps it from them; `fuzz/readers.py` measures the code around them."""


class Regex(NamedTuple):
    """A compiled pattern, where it was found, and the methods that the module calls it with, if that can be told."""

    name: str
    pattern: re.Pattern[str]
    methods: frozenset[str]


def modules() -> Iterator[types.ModuleType]:
    for found in pkgutil.walk_packages(crag_middleware.__path__, "crag_middleware."):
        if not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def held(value: Any) -> Iterable[Any]:
    """What a value of ours is made of: in collections, partial functions, methods, closures, defaults and objects."""
    match value:
        case dict():
            return [*value.keys(), *value.values()]
        case tuple() | list() | set() | frozenset():
            return value
        case functools.partial():
            return [value.func, *value.args, *value.keywords.values()]
        case types.BuiltinMethodType():
            return [value.__self__]
        case types.FunctionType() if value.__module__.startswith("crag_middleware"):
            return [
                *(cell.cell_contents for cell in value.__closure__ or ()),
                *(value.__defaults__ or ()),
                *(value.__kwdefaults__ or {}).values(),
            ]
        case _ if str(getattr(value, "__module__", "")).startswith("crag_middleware") and not isinstance(value, types.ModuleType):
            slots = (getattr(value, name, None) for name in getattr(type(value), "__slots__", ()))
            return [*getattr(value, "__dict__", {}).values(), *slots]
    return ()


def inside(value: Any, seen: dict[int, Any]) -> Iterator[re.Pattern[Any]]:
    """All patterns that a value holds."""
    if id(value) in seen:
        return
    seen[id(value)] = value  # Kept, so that no other gets its identity.
    if isinstance(value, re.Pattern):
        yield value
    for part in held(value):
        yield from inside(part, seen)


def written(module: types.ModuleType) -> Iterator[tuple[str, str, str]]:
    """Function, method and pattern of each `re.search(...)` and the like whose pattern stands there."""
    tree = ast.parse(Path(str(module.__file__)).read_text())
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
        for call in ast.walk(function):
            match call:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=method), args=[ast.Constant(value=str() as pattern), *_]):
                    yield function.name, method, pattern


def collect() -> list[Regex]:
    """Every regular expression of the package, once."""
    found: dict[tuple[Any, int], Regex] = {}
    seen: dict[int, Any] = {}
    for module in modules():
        short = module.__name__.removeprefix("crag_middleware.")
        source = Path(str(module.__file__)).read_text()
        for name, value in vars(module).items():
            used = frozenset(re.findall(rf"\b{re.escape(name)}\.(match|fullmatch|search|sub|subn|split|finditer|findall)\b", source))
            patterns = list(inside(value, seen))
            for place, pattern in enumerate(patterns):
                if isinstance(pattern.pattern, str):
                    which = f"[{place}]" if len(patterns) > 1 else ""
                    found.setdefault((pattern.pattern, pattern.flags), Regex(f"{short}.{name}{which}", pattern, used))
        for function, method, pattern_text in written(module):
            if method not in ("compile", "escape"):
                pattern = re.compile(pattern_text)
                found.setdefault((pattern_text, pattern.flags), Regex(f"{short}.{function}()", pattern, frozenset({method})))
    return list(found.values())


CATEGORIES = {
    sre.CATEGORY_DIGIT: "1",
    sre.CATEGORY_SPACE: " \n",
    sre.CATEGORY_WORD: "a1_",
    sre.CATEGORY_NOT_SPACE: "a!",
    sre.CATEGORY_NOT_WORD: " !",
    sre.CATEGORY_NOT_DIGIT: "a",
}
REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT)


def character(items: Any, choice: int) -> str:
    """A character of a class."""
    known = ""
    for op, value in items:
        match op:
            case sre.LITERAL:
                known += chr(value)
            case sre.RANGE:
                known += chr(value[0]) + chr(value[1])
            case sre.CATEGORY:
                known += CATEGORIES[value]
    if items[0][0] is sre.NEGATE:
        known = "".join(one for one in "a 1-,中\n<(" if one not in known) or "\x01"
    return known[choice % len(known)]


def sample(tree: Any, choice: int) -> str:
    """A short text of the kind that a part of a pattern matches; `choice` picks branches and characters."""
    text = ""
    for op, value in tree:
        if op is sre.LITERAL:
            text += chr(value)
        elif op is sre.NOT_LITERAL:
            text += "a" if value != ord("a") else "b"
        elif op is sre.ANY:
            text += "a 中<"[choice % 4]
        elif op is sre.IN:
            text += character(value, choice)
        elif op is sre.BRANCH:
            text += sample(value[1][choice % len(value[1])], choice)
        elif op in REPEATS:
            text += sample(value[2], choice) * max(value[0], choice % 2)
        elif op is sre.SUBPATTERN:
            text += sample(value[3], choice)
        elif op is sre.ATOMIC_GROUP:
            text += sample(value, choice)
    return text


def repeated(tree: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Each part that may occur more than 15 times, with what comes before it."""
    for place, (op, value) in enumerate(tree):
        here = (*before, list(tree)[:place])
        if op in REPEATS:
            if value[1] is sre.MAXREPEAT or value[1] > 15:
                yield here, value[2]
            yield from repeated(value[2], here)
        elif op is sre.SUBPATTERN:
            yield from repeated(value[3], here)
        elif op is sre.ATOMIC_GROUP:
            yield from repeated(value, here)
        elif op is sre.BRANCH:
            for branch in value[1]:
                yield from repeated(branch, here)
        elif op in (sre.ASSERT, sre.ASSERT_NOT):
            yield from repeated(value[1], here)


Attack = tuple[str, str, str]
"""A beginning, what is repeated after it, and an end that spoils the match."""


def attacks(pattern: re.Pattern[str], choices: int) -> list[Attack]:
    tree = parser.parse(pattern.pattern, pattern.flags)
    found: dict[Attack, None] = {}
    for choice in range(choices):
        whole = sample(tree, choice) or "a"
        found |= dict.fromkeys([("", whole, ""), ("", whole[:-1] or "a", ""), ("", whole, "\0")])
        for before, body in repeated(tree):
            prefix = "".join(sample(part, choice) for part in before)
            for other in range(choices):
                pump = sample(body, other) or "a"
                found |= dict.fromkeys(
                    [(prefix, pump, "\0"), ("", pump, "\0"), ("", pump, ""), ("", prefix + pump, "\0"), (prefix, pump, "\n!")]
                )
    return list(found)


class SlowError(Exception):
    """A pattern took too long."""


def seconds(run: Callable[[str], object], text: str) -> float:
    """Processor time; a second if it takes more. A pattern at work can be interrupted by a signal only."""

    def stop(*_: object) -> None:
        raise SlowError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, 1.0)
    begun = time.thread_time()
    try:
        run(text)
    except SlowError:
        return 1.0
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return time.thread_time() - begun


def is_slow(run: Callable[[str], object], attack: Attack, size: int) -> bool:
    """Whether four times the text takes far more than four times the time, or a short one takes very long."""
    begin, pump, end = attack

    def text(length: int) -> str:
        return begin + pump * max(1, length // len(pump)) + end

    if seconds(run, text(40)) >= 1.0 and seconds(run, text(40)) >= 1.0:
        return True
    if seconds(run, text(size)) < 0.002:
        return False
    short, long = (min(seconds(run, text(length)) for _ in range(3)) for length in (size, 4 * size))
    return long >= 1.0 or long > 8 * short


def runs(regex: Regex) -> Iterator[Callable[[str], object]]:
    """The ways in which the package uses it."""
    if "match" in regex.methods:
        yield regex.pattern.match
    if "fullmatch" in regex.methods:
        yield regex.pattern.fullmatch
    if not regex.methods or regex.methods - {"match", "fullmatch"}:
        yield lambda text: regex.pattern.sub("", text)


REGEXES = collect()


def is_bounded(name: str) -> bool:
    """Whether a pattern, or the collection that holds it, is known to see short texts only."""
    return name in BOUNDED or name.partition("[")[0] in BOUNDED


def slow_ones(*, choices: int, size: int) -> dict[str, Attack]:
    """The patterns that are slow, each with a text that shows it."""
    found: dict[str, Attack] = {}
    for regex in REGEXES:
        if regex.name not in found and not is_bounded(regex.name):
            tried = ((run, attack) for run in runs(regex) for attack in attacks(regex.pattern, choices))
            if shown := next((attack for run, attack in tried if is_slow(run, attack, size)), None):
                found[regex.name] = shown
    return found


def test_every_kind_of_place_was_looked_into() -> None:
    names = {regex.name for regex in REGEXES}

    assert len(REGEXES) > 400
    assert {"stages.replies._REASONING", "stages.secrets._RULES[3]", "stages.injection._QUIET[3]", "adapters.bocha._items()"} <= names
    assert BOUNDED.keys() <= names | {name.partition("[")[0] for name in names}


@pytest.mark.parametrize("pattern", [r"(a|a)*b", r"\s+\Z"])
def test_a_slow_pattern_is_found(pattern: str) -> None:
    compiled = re.compile(pattern)

    assert any(is_slow(compiled.search, attack, 2000) for attack in attacks(compiled, 3))


def test_no_pattern_is_slow() -> None:
    assert slow_ones(choices=1, size=2000) == {}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_pattern_is_slow_on_many_texts() -> None:
    assert slow_ones(choices=6, size=4000) == {}

"""Who may see which rows: the scope of a turn, the filter that keeps to it, the check of every row."""

import hashlib
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from langgraph.errors import GraphBubbleUp
from langgraph.runtime import Runtime

from crag_middleware.errors import ConfigError, TenantError

MAX_ID_BYTES = 256
"""Longest tenant id, in UTF-8 bytes."""

Kind = Literal["text", "number", "flag", "any"]
"""What a field may be compared with: strings, numbers, booleans, or each of them (a JSON key)."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The tenant of one turn. Its text form never shows the id."""

    agent_id: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Fields:
    """What conditions may be put on.

    Attributes:
        columns: The scalar columns, each with its kind.
        json_field: The column that holds free keys, `$meta` for dynamic fields, or None.
        others: The columns that no value can be compared with: JSON, arrays, vectors.
    """

    columns: Mapping[str, Kind]
    json_field: str | None = None
    others: frozenset[str] = frozenset()


def check_agent_id(value: object) -> str:
    """The value as a tenant id: 1 to 256 UTF-8 bytes, not blank, otherwise free, never trimmed or normalised.

    Raises:
        TenantError: It is none. The text does not hold it.
    """
    if not isinstance(value, str):
        msg = f"`agent_id` must be a string, got {type(value).__name__}"
        raise TenantError(msg, reason="no_tenant")
    value = str.__str__(value)
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        msg = "`agent_id` must be valid Unicode, got lone surrogates"
        raise TenantError(msg, reason="no_tenant") from None
    if not value.strip() or size > MAX_ID_BYTES:
        got = f"{size} bytes" if value.strip() else "a blank string"
        msg = f"`agent_id` must hold 1 to {MAX_ID_BYTES} bytes and not only white space, got {got}"
        raise TenantError(msg, reason="no_tenant")
    return value


def resolve(configured: str | Callable[[Runtime[Any]], str] | None, runtime: Runtime[Any]) -> Scope:
    """The tenant of this call: given when built, or found in `runtime.context` (attribute or key `agent_id`), nowhere else.

    Args:
        configured: The id, or a function of the runtime that is then the only source, or None.
        runtime: The runtime of the running agent; a context value of None counts as not given.

    Raises:
        TenantError: There is none, it is malformed, or both sources are there and differ.
    """
    if callable(configured):
        return Scope(check_agent_id(_call(configured, runtime)))
    context = runtime.context
    given = context.get("agent_id") if isinstance(context, Mapping) else getattr(context, "agent_id", None)
    found = {check_agent_id(value) for value in (configured, given) if value is not None}
    if len(found) > 1:
        msg = "`agent_id` of the middleware and of `runtime.context` must agree, got two that differ"
        raise TenantError(msg, reason="tenant_conflict")
    if not found:
        msg = "there is no tenant: give `CRAGMiddleware(..., agent_id=...)`, or invoke the agent with a `context=` that has `agent_id`"
        raise TenantError(msg, reason="no_tenant")
    return Scope(found.pop())


def _call(source: Callable[[Runtime[Any]], str], runtime: Runtime[Any]) -> object:
    """What the function returns; its failure is a tenant error."""
    try:
        value: object = source(runtime)
    except GraphBubbleUp:
        raise
    except Exception as error:  # noqa: BLE001 - raised on as ours
        msg = f"the function given as `agent_id` failed with {type(error).__name__}"
        # Not `from error`: its text may hold ids, and causes are printed with every traceback.
        raise TenantError(msg, reason="no_tenant") from None
    if inspect.iscoroutine(value):
        value.close()
    return value


def digest(*parts: str) -> str:
    """A fingerprint of texts, each with its length, so that no two lists of texts share one."""
    whole = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        whole.update(len(encoded).to_bytes(8, "big") + encoded)
    return whole.hexdigest()


def check_owners(owners: Iterable[object], scope: Scope) -> None:
    """Passes if each row belongs to the tenant.

    Args:
        owners: The tenant field of each row; None where a row has none.
        scope: The tenant.

    Raises:
        TenantError: A row belongs to nobody or to somebody else.
    """
    if any(not isinstance(owner, str) or owner != scope.agent_id for owner in owners):
        msg = "the store returned a row that is not the tenant's; nothing of this search is used. Check that the store applies filters"
        raise TenantError(msg, reason="foreign_row")


ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})
"""The escapes that Milvus and Milvus Lite both know. Other control characters are allowed bare by both; Lite knows no escape for them."""


def quote(value: str) -> str:
    """The string as a literal of a Milvus expression."""
    return f'"{value.translate(ESCAPES)}"'


def misread_by_server(expression: str) -> bool:
    """Whether a Milvus server would read the expression as a different one (Milvus Lite does not).

    It escapes Chinese characters before it parses, and keeps the low 16 bits only of those beyond U+FFFF.

    Source: `convertHanToASCII` and `formatUnicode` in Milvus, internal/parser/planparserv2/utils.go.
    """
    return any("\U00016fe0" <= c <= "\U00016fff" or "\U00020000" <= c <= "\U0003ffff" for c in expression)


def tenant_expression(path: str, scope: Scope) -> str:
    """The condition that a row belongs to the tenant.

    Args:
        path: A column's name, or a key in a JSON column such as `metadata["agent_id"]`; never a user's text.
        scope: The tenant.
    """
    return f"{path} == {quote(scope.agent_id)}"


def combine(tenant: str, rows: str | None) -> str:
    """Both conditions, each in parentheses, so that the second can only narrow the first."""
    return f"({tenant}) and ({rows})" if rows else tenant


def row_expression(conditions: Mapping[str, Any] | None, min_confidence: float | None, fields: Fields) -> str | None:
    """The conditions as a Milvus expression, all of which must hold; None if there are none.

    Args:
        conditions: `{field: value}` or `{field: {op: value}}` with `eq ne gt gte lt lte in not_in`.
        min_confidence: Floor on the stored confidence; rows must lie above it.
        fields: What may be named.

    Raises:
        ConfigError: A field, an operator or a value can't be used.
    """
    if conditions is not None and not isinstance(conditions, Mapping):
        msg = f"`filter` must be data such as {{'version': {{'gte': 2}}}}, got {type(conditions).__name__}"
        raise ConfigError(msg)
    terms = [term for name, wanted in (conditions or {}).items() for term in _terms(name, wanted, fields)]
    if min_confidence is not None:
        terms += _terms("confidence", {"gt": float(min_confidence)}, fields)
    return " and ".join(f"({term})" for term in terms) or None


COMPARISONS = {"eq": "==", "ne": "!=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
MEMBERSHIPS = {"in": ("in", "==", " or "), "not_in": ("not in", "!=", " and ")}
OPERATORS = ", ".join((*COMPARISONS, *MEMBERSHIPS))


def _terms(name: object, wanted: object, fields: Fields) -> Iterable[str]:
    """One comparison for each operator on the field."""
    path, kind = _locate(name, fields)
    operations = wanted if isinstance(wanted, Mapping) else {"eq": wanted}
    if not operations:
        msg = f"`filter` on {name!r} holds no operator; leave the field out or use one of {OPERATORS}"
        raise ConfigError(msg)
    for op, value in operations.items():
        if op in COMPARISONS:
            yield f"{path} {COMPARISONS[op]} {_literal(name, op, value, kind)}"
        elif op in MEMBERSHIPS:
            if not isinstance(value, list | tuple | set | frozenset) or not value:
                got = "an empty one" if isinstance(value, list | tuple | set | frozenset) else type(value).__name__
                msg = f"`filter` on {name!r}: `{op}` needs a list with at least one value, got {got}"
                raise ConfigError(msg)
            member, sign, joint = MEMBERSHIPS[op]
            literals = [_literal(name, op, v, kind) for v in value]
            if kind == "any":  # Milvus Lite knows `in` for columns only
                yield joint.join(f"{path} {sign} {literal}" for literal in literals)
            else:
                yield f"{path} {member} [{', '.join(literals)}]"
        else:
            msg = f"`filter` on {name!r}: {op!r} is no operator; the operators are {OPERATORS}"
            raise ConfigError(msg)


def _locate(name: object, fields: Fields) -> tuple[str, Kind]:
    """Where the field lies in a row, and what it may be compared with."""
    if not isinstance(name, str) or not name:
        msg = f"`filter` must name a field, got {'an empty name' if name == '' else type(name).__name__}"
        raise ConfigError(msg)
    if name in fields.columns:
        return name, fields.columns[name]
    if name in fields.others:
        hint = "; name one of its keys without the column" if name == fields.json_field else ""
        msg = f"`filter` can't compare the column {name!r}: it is JSON, an array or a vector{hint}"
        raise ConfigError(msg)
    if fields.json_field is None:
        msg = f"the collection has no field {name!r}; it can be filtered by: {', '.join(sorted(fields.columns)) or 'nothing'}"
        raise ConfigError(msg)
    return json_path(fields.json_field, name), "any"


def json_path(column: str, key: str) -> str:
    r"""The path of a key in a JSON column.

    Raises:
        ConfigError: The key holds quotes, backslashes, brackets or control characters: Milvus takes keys apart without reading escapes.
    """
    if any(c in "\"'\\[]" or not c.isprintable() for c in key) or not key.strip():
        msg = f"a metadata key in a filter must not be blank or hold quotes, backslashes, brackets or control characters, got {key!r}"
        raise ConfigError(msg)
    return f'{column}["{key}"]'


def _literal(name: object, op: str, value: object, kind: Kind) -> str:
    """The value as a literal of an expression, if the field can be compared with it."""
    match value:
        case bool() if kind in ("flag", "any") and op in ("eq", "ne", "in", "not_in"):
            return str(value).lower()
        case bool():
            pass
        case int() if kind in ("number", "any") and abs(value) < 2**63:
            return str(int(value))
        case float() if kind in ("number", "any") and math.isfinite(value):
            return repr(float(value))
        case str() if kind in ("text", "any") and _is_unicode(value):
            return quote(value)
    text, number, flag = "a string of valid Unicode", "a finite number of 64 bits", "true or false"
    wanted = {"text": text, "number": number, "flag": f"{flag} with eq, ne, in or not_in", "any": f"{text}, {number}, {flag}"}
    msg = f"`filter` on {name!r}: `{op}` needs {wanted[kind]}, got {type(value).__name__}"
    raise ConfigError(msg)


def _is_unicode(value: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in value)

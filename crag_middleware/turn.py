"""What tells one turn from another, and where an agent's state keeps what is known of it."""

import types
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired

from langchain.agents.middleware import AgentState
from langchain.agents.middleware.types import OmitFromInput, PrivateStateAttr
from langgraph.channels import UntrackedValue

from crag_middleware.settings import CRAGSettings
from crag_middleware.tenancy import Scope
from crag_middleware.types import Question


@dataclass(frozen=True, slots=True)
class Turn:
    """One user turn: whose it is, the tenant's settings, what is asked, and a digest of the words."""

    scope: Scope
    settings: CRAGSettings
    question: Question
    text: str


def state_schema(receipt_key: str, turn_key: str, *, saved: bool) -> type[AgentState[Any]]:
    """The agent's state with this instance's two keys; callers can't set them, and unless `saved` they stay out of checkpoints."""
    channel = () if saved else (UntrackedValue,)
    keys = {
        receipt_key: NotRequired[Annotated[dict[str, Any], OmitFromInput, *channel]],
        turn_key: NotRequired[Annotated[dict[str, Any], PrivateStateAttr, *channel]],
    }
    return types.new_class("CRAGState", (AgentState,), {}, lambda body: body.update({"__annotations__": keys, "__module__": __name__}))

"""The graph that `langgraph dev` serves in LangGraph Studio: run it in this folder, and give `{"agent_id": "aurora"}` as the run's context.

No checkpointer: the server brings its own. The knowledge is made when the graph is loaded, and gone with the process.
"""

import tempfile
from pathlib import Path

from langchain.agents import create_agent
from shop import Caller, ToolCallingModel, evaluator, fill

from crag_middleware import CRAGMiddleware

folder = tempfile.TemporaryDirectory()
crag = CRAGMiddleware(fill(str(Path(folder.name, "shop.db"))), evaluator=evaluator())
graph = create_agent(ToolCallingModel(), middleware=[crag], context_schema=Caller)

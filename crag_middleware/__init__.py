"""Corrective RAG as a LangChain middleware: `create_agent(..., middleware=[CRAGMiddleware(...)])`.

The public names stand in `__init__.pyi`. Each loads its module when it is first used, so that this import costs next to nothing.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

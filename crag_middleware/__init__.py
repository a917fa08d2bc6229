"""Corrective RAG as a LangChain middleware: `create_agent(..., middleware=[CRAGMiddleware(...)])`."""

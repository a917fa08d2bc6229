"""Corrective RAG as a LangChain middleware."""

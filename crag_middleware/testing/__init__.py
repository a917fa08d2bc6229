"""For tests of agents and of own adapters, ours and yours: scripted models and ports, and suites of pytest tests that every adapter of a port passes.

from crag_middleware.testing import EvaluatorSuite

class TestMine(EvaluatorSuite):
    @pytest.fixture
    def evaluator(self):
        return Mine()
"""

from crag_middleware.testing.claim_suite import ClaimCheckerSuite
from crag_middleware.testing.evaluator_suite import EvaluatorSuite
from crag_middleware.testing.port_suites import RefinerSuite, RerankerSuite, RetrieverSuite, RewriterSuite, WebSearchSuite
from crag_middleware.testing.quoting import QuotingChatModel
from crag_middleware.testing.scripted import ScriptedChatModel, ScriptedEvaluator, ScriptedRetriever, ScriptedRewriter, ScriptedWebSearch

__all__ = [
    "ClaimCheckerSuite",
    "EvaluatorSuite",
    "QuotingChatModel",
    "RefinerSuite",
    "RerankerSuite",
    "RetrieverSuite",
    "RewriterSuite",
    "ScriptedChatModel",
    "ScriptedEvaluator",
    "ScriptedRetriever",
    "ScriptedRewriter",
    "ScriptedWebSearch",
    "WebSearchSuite",
]

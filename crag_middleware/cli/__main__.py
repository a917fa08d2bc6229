"""`python -m crag_middleware.cli`, the same as `crag`."""

from crag_middleware.cli import main

main()

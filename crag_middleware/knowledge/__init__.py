"""Getting documents in: the collection's schema, opening it, preparing and writing rows."""

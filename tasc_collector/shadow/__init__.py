"""Shadow collection: budget, membership and order (pure), the runner that sends, and what its journal means."""

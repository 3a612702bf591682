"""Assets: each reads its inputs, calls one step, publishes, and reports metadata. No IO manager; they write their own files."""

"""Bounded parsers: JSON, SSE, NDJSON and Prometheus text. Bytes in, events out; no sockets, no clock."""

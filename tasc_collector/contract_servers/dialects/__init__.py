"""The wire dialects, each a small renderer from generation to frames; what differs between runtimes is data."""

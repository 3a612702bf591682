"""Every record that leaves the process: frozen, strict, with canonical bytes and domain-separated digests."""

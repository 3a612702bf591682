"""Launch plans, device leases, engine processes and device snapshots on the team's own hosts."""

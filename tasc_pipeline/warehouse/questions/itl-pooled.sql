-- How long does a user wait for the next token? ITL over all gaps of all calls together, which long answers dominate
SELECT window_key, profile_id, count(gap_ns) AS gaps,
    quantile_cont(gap_ns, 0.5) / 1e6 AS itl_p50_ms, quantile_cont(gap_ns, 0.95) / 1e6 AS itl_p95_ms, max(gap_ns) / 1e6 AS longest_ms
FROM token_events
WHERE window_key = coalesce(getvariable('window_key'), window_key)
GROUP BY ALL
ORDER BY window_key, profile_id

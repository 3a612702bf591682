-- Can the timings be trusted? Waiting, connecting and the collector's own delay, which are in no latency
SELECT window_key, profile_id, quantile_cont(queue_ms, 0.95) AS queue_p95_ms, quantile_cont(connect_ms, 0.95) AS connect_p95_ms,
    quantile_cont(tls_ms, 0.95) AS tls_p95_ms, quantile_cont(collector_lag_ms, 0.99) AS lag_p99_ms,
    max(arrival_uncertainty_ms) AS worst_uncertainty_ms, count(*) FILTER (timing_flagged) AS flagged
FROM traces
WHERE state = 'accepted' AND window_key = coalesce(getvariable('window_key'), window_key)
GROUP BY ALL
ORDER BY window_key, profile_id

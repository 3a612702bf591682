-- Is one replica behind an address slower than the others?
SELECT window_key, profile_id, peer, count(*) AS calls, quantile_cont(ttft_ms, 0.5) AS ttft_p50_ms,
    quantile_cont(ttft_ms, 0.95) AS ttft_p95_ms
FROM traces
WHERE status = 'success' AND window_key = coalesce(getvariable('window_key'), window_key)
GROUP BY ALL
ORDER BY window_key, profile_id, peer

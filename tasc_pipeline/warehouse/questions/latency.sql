-- How fast is each profile? Median and 95th percentile over successful calls
SELECT window_key, profile_id, count(*) AS calls,
    quantile_cont(ttft_ms, 0.5) AS ttft_p50_ms, quantile_cont(ttft_ms, 0.95) AS ttft_p95_ms,
    quantile_cont(tpot_ms, 0.5) AS tpot_p50_ms, quantile_cont(tpot_ms, 0.95) AS tpot_p95_ms,
    quantile_cont(e2e_ms, 0.5) AS e2e_p50_ms, quantile_cont(e2e_ms, 0.95) AS e2e_p95_ms
FROM traces
WHERE status = 'success' AND window_key = coalesce(getvariable('window_key'), window_key)
GROUP BY ALL
ORDER BY window_key, profile_id

-- How uneven is one call's stream? 95th percentile of the calls' own p95 ITL, by prompt length and hour
SELECT start_hour, case_length_bucket, profile_id, count(itl_p95_ms) AS calls, quantile_cont(itl_p95_ms, 0.95) AS itl_p95_of_calls_ms
FROM traces
WHERE status = 'success' AND window_key = coalesce(getvariable('window_key'), window_key)
GROUP BY ALL
ORDER BY start_hour, min(try_cast(split_part(case_length_bucket, '-', 2) AS BIGINT)), profile_id

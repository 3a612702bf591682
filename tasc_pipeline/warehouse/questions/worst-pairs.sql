-- On which cases does the candidate lose most time to first token?
SELECT window_key, case_id, replicate, case_length_bucket, champion_ttft_ms, candidate_ttft_ms, ttft_ratio, ttft_delta_ms
FROM paired_deltas
WHERE ttft_ratio IS NOT NULL AND window_key = coalesce(getvariable('window_key'), window_key)
ORDER BY ttft_ratio DESC, window_key, case_id, replicate
LIMIT 20

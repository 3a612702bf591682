-- Did both sides do the same work? Input, cached and output tokens, and tokens per event
SELECT window_key, profile_id, sum(input_tokens) AS input_tokens, sum(input_tokens_cached) AS cached_tokens,
    sum(output_tokens) AS output_tokens, median(output_tokens) AS output_tokens_median, avg(tokens_per_event) AS tokens_per_event,
    count(DISTINCT peer) AS replicas
FROM traces
WHERE status = 'success' AND window_key = coalesce(getvariable('window_key'), window_key)
GROUP BY ALL
ORDER BY window_key, profile_id

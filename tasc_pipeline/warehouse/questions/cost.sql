-- What does a million output tokens cost, and how do we know?
SELECT window_key, profile_id, cost_class, count(*) AS calls, sum(cost_usd) AS cost_usd, sum(output_tokens) AS output_tokens,
    1e6 * sum(cost_usd) / nullif(sum(output_tokens), 0) AS usd_per_million_output_tokens
FROM traces
WHERE status = 'success' AND window_key = coalesce(getvariable('window_key'), window_key)
GROUP BY ALL
ORDER BY window_key, profile_id, cost_class

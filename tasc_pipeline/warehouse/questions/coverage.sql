-- What became of every planned execution?
SELECT window_key, profile_id, planned, success, failure, sent_unknown, not_sent, not_attempted, round(coverage, 4) AS coverage
FROM coverage
WHERE window_key = coalesce(getvariable('window_key'), window_key)
ORDER BY window_key, profile_id

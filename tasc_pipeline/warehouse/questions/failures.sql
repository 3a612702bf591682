-- Why did executions fail, and which are unknown or were never sent?
SELECT window_key, profile_id, state, dispatch_state, coalesce(failure_category, fault_reason) AS reason, count(*) AS executions,
    count(DISTINCT case_id) AS cases
FROM traces
WHERE status IS DISTINCT FROM 'success' AND window_key = coalesce(getvariable('window_key'), window_key)
GROUP BY ALL
ORDER BY executions DESC, window_key, profile_id, reason

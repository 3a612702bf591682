-- How has the verdict moved from window to window?
SELECT windows_current.event_time_start, decisions.window_key, decisions.candidate_profile_id, decisions.result,
    gates.gate, gates.actual, gates.interval_low, gates.interval_high, gates.threshold, gates.verdict
FROM decisions
JOIN windows_current USING (window_key)
LEFT JOIN gates ON gates.window_key = decisions.window_key AND gates.deciding
    AND gates.candidate_profile_id IS NOT DISTINCT FROM decisions.candidate_profile_id
WHERE decisions.window_key = coalesce(getvariable('window_key'), decisions.window_key)
ORDER BY windows_current.event_time_start, decisions.window_key, decisions.candidate_profile_id, gates.gate

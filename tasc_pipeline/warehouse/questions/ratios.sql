-- Is the candidate slower than the champion on the same case? Ratios pair by pair
SELECT window_key, candidate_profile_id, count(*) FILTER (both_succeeded) AS pairs,
    median(ttft_ratio) AS ttft_median_ratio, median(tpot_ratio) AS tpot_median_ratio, median(e2e_ratio) AS e2e_median_ratio,
    avg((ttft_ratio > 1)::INTEGER) AS share_slower_ttft, avg((e2e_ratio > 1)::INTEGER) AS share_slower_e2e
FROM paired_deltas
WHERE window_key = coalesce(getvariable('window_key'), window_key)
GROUP BY ALL
ORDER BY window_key, candidate_profile_id

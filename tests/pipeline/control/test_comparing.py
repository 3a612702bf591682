from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tasc_collector.contracts.report import FailureResult, Interval, RatioResult
from tasc_pipeline.control.comparing import compare
from tasc_pipeline.control.fairness import Conditions
from tasc_pipeline.control.ruling import FailureGrounds, overall
from tasc_pipeline.control.sentences import asides, floor_text
from tests.support.comparison_rows import question, rows, swapped

_INTERVAL = Interval(low=-0.03, high=0.03, confidence=0.95, method="betting")
FAILURES = FailureResult(
    champion_rate=0.05,
    candidate_rate=0.05,
    difference=0.0,
    interval=_INTERVAL,
    worst_case=0.0,
    best_case=0.0,
    margin=0.02,
    verdict="undecided",
    pairs=80,
    groups=80,
)
"""Both fail 5 % of the time, and the margin is 2 %."""
RATIOS = [
    RatioResult(
        metric="ttft",
        statistic="median",
        estimate=1.0,
        interval=_INTERVAL,
        margin=1.1,
        verdict="no-worse",
        deciding=True,
        pairs=80,
        groups=80,
        noise_floor=None,
    )
]


def _ratio(result, metric: str, statistic: str = "median"):
    return next(item for item in result.ratios if (item.metric, item.statistic) == (metric, statistic))


def test_a_ten_per_cent_ttft_regression_is_found() -> None:
    result = compare(question(), rows(1, ttft=1.10))
    assert result.verdict == "worse"
    assert _ratio(result, "ttft").estimate == pytest.approx(1.10, abs=0.01)
    assert _ratio(result, "ttft").verdict == "worse"
    assert _ratio(result, "tpot").verdict == "no-worse"
    assert result.sentence.startswith("candidate is worse than champion in TTFT: TTFT 1.10x (")


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_an_a_a_pair_is_no_worse(seed: int) -> None:
    result = compare(question(margin=1.10), rows(seed))
    assert (result.verdict, result.reasons) == ("no-worse", ())
    assert all(item.verdict == "no-worse" for item in result.ratios)


def test_the_same_rows_in_any_order_give_the_same_result() -> None:
    observations = rows(5, ttft=1.04)
    shuffled = list(observations)
    random.Random(7).shuffle(shuffled)
    assert compare(question(), observations).to_json() == compare(question(), shuffled).to_json()


def test_exchanging_champion_and_candidate_inverts_every_ratio() -> None:
    observations = rows(6, ttft=1.08)
    one, other = compare(question(), observations), compare(question(), swapped(observations))
    for first, second in zip(one.ratios, other.ratios, strict=True):
        assert first.estimate == pytest.approx(1 / second.estimate)
    ttft, turned = _ratio(one, "ttft"), _ratio(other, "ttft")
    assert (ttft.interval.low, ttft.interval.high) == pytest.approx((1 / turned.interval.high, 1 / turned.interval.low))


def test_few_groups_are_undecided_and_the_sentence_says_so() -> None:
    result = compare(question(), rows(7, groups=9, ttft=2.0))
    assert result.verdict == "undecided"
    assert result.reasons == ("9 groups, the study asks for 10",)
    assert "9 groups, the study asks for 10" in result.sentence


def test_low_coverage_is_undecided_and_counted_in_the_sentence() -> None:
    observations = [
        replace(item, dispatch_state="sent_unknown", status="aborted") if item.case_id < "case-030" else item
        for item in rows(8)
    ]
    result = compare(question(), observations)
    assert result.reasons == ("coverage 62%, the study asks for 90%",)
    assert (
        "120 of 320 planned executions have no answer that counts (120 unknown, 0 not sent, 0 not attempted)."
        in result.sentence
    )


def test_unknown_executions_alone_forbid_no_worse() -> None:
    observations = rows(9)
    lost = [
        replace(item, state="not_sent", dispatch_state="not_sent", status=None)
        if item.profile_id == "candidate" and item.case_id < "case-012"
        else item
        for item in observations
    ]
    result = compare(question(failure_margin=0.2), lost)
    assert result.failures.difference == 0.0
    assert result.failures.worst_case == pytest.approx(0.15)
    assert result.failures.verdict == "undecided"
    assert result.verdict == "undecided"


def test_a_candidate_that_fails_is_worse_though_it_is_fast() -> None:
    observations = [
        replace(item, status="failure", reason="timeout")
        if item.profile_id == "candidate" and item.case_id < "case-040"
        else item
        for item in rows(10, ttft=0.5)
    ]
    result = compare(question(), observations)
    assert result.failures.difference == 0.5
    assert result.verdict == "worse"


def test_no_failure_at_all_does_not_exclude_a_small_difference() -> None:
    result = compare(question(failure_margin=0.02, margin=1.10), rows(11))
    assert result.verdict == "undecided"
    assert result.reasons == ("no failure, and 80 groups cannot exclude 2.0% more of them (about 217 would)",)


def test_tpot_stands_for_itl_where_tokens_per_event_differ() -> None:
    observations = [
        replace(item, tokens_per_event=4.0) if item.profile_id == "candidate" else item for item in rows(12)
    ]
    result = compare(question(), observations)
    assert (_ratio(result, "itl").deciding, _ratio(result, "tpot").deciding) == (False, True)
    assert _ratio(result, "itl").set_aside == "tokens per event differ: TPOT stands for it"
    assert "Not equal on both sides: tokens per event differ." in result.sentence
    assert "ITL" not in result.sentence


def test_tpot_stands_for_itl_where_gaps_are_zero() -> None:
    observations = [replace(item, itl_p50_ms=0.0) if item.case_id < "case-008" else item for item in rows(13)]
    itl = _ratio(compare(question(), observations), "itl")
    assert (itl.pairs, itl.deciding) == (160, False)
    assert itl.set_aside == "10% of pairs have a gap of zero, several events in one read: TPOT stands for it"


def test_a_p95_of_few_groups_is_set_aside() -> None:
    result = compare(question(), rows(14, groups=40))
    p95 = _ratio(result, "ttft", "p95")
    assert (p95.deciding, p95.interval.low, p95.set_aside) == (False, None, "40 groups, a 95th percentile needs 60")
    assert result.verdict == "no-worse"


def test_one_figure_of_many_just_beyond_its_margin_is_not_yet_worse() -> None:
    found = compare(question(), rows(15, ttft=1.0703))
    ttft = _ratio(found, "ttft")
    assert ttft.joint_low < ttft.margin < ttft.interval.low
    assert found.verdict == "undecided"
    assert found.reasons[0] == "TTFT beyond the margin, but one of 9 figures can be by chance"


def test_the_noise_floor_needs_two_replicates_and_is_near_the_champions_own_noise() -> None:
    assert all(item.noise_floor is None for item in compare(question(), rows(16, replicates=1)).ratios)
    floor = _ratio(compare(question(), rows(16, noise=0.03)), "ttft").noise_floor
    # a median of 80 differences of two calls: 1.96 * 1.2533 * 0.03 * sqrt(2) / sqrt(80) = 0.0117
    assert 0.005 < floor < 0.02


def test_the_noise_floor_of_failures_is_what_the_champion_shows_against_itself() -> None:
    """80 groups of one case, two replicates; of four cases the second one fails.

    Each moves the mean over groups by 1/80 up or down: all four the same way, 4/80, with chance 1/8, and never more.
    """
    calls = [
        replace(item, status="failure") if item.case_id < "case-004" and item.replicate == 1 else item
        for item in rows(21)
        if item.profile_id == "champion"
    ]
    others = [item for item in rows(21) if item.profile_id == "candidate"]
    assert compare(question(), [*calls, *others]).failures.noise_floor == pytest.approx(4 / 80)
    assert compare(question(), rows(21)).failures.noise_floor == 0.0
    assert compare(question(), rows(21, replicates=1)).failures.noise_floor is None


def test_where_some_calls_fail_the_sentence_says_how_many_groups_would_tell() -> None:
    observations = [
        replace(item, status="failure") if item.case_id < "case-008" and item.replicate == 0 else item
        for item in rows(22)
    ]
    result = compare(question(margin=1.10, failure_margin=0.02), observations)
    # both fail 8 of 160 calls: (1.959964 + 0.841621)^2 * 2 * 0.05 * 0.95 / 0.02^2 = 1864.1
    assert result.reasons == (
        "failures can be on either side of the margin of 2.0% with 80 groups (about 1865 would tell)",
    )
    assert "about 1865 would tell" in result.sentence


def test_where_calls_are_unknown_they_are_the_reason_and_no_number_of_groups_is_promised() -> None:
    """Of 1,000 groups 30 candidate calls are unknown: 3 % alone are beyond a margin of 2 %."""
    observations = [
        replace(item, dispatch_state="sent_unknown", status="unknown", reason="connection-lost")
        if item.profile_id == "candidate" and item.case_id < "case-030"
        else item
        for item in rows(23, groups=1_000, replicates=1)
    ]
    result = compare(question(margin=1.10, failure_margin=0.02), observations)
    assert (result.failures.best_case, result.failures.worst_case) == (0.0, 0.03)
    [reason] = result.reasons
    assert reason.startswith("failures can be on either side of the margin of 2.0% with 970 groups: ")
    assert reason.endswith("executions without a known end alone leave +0.0% to +3.0%")


def test_in_a_sequence_the_groups_of_all_windows_count_and_no_number_of_them_is_promised() -> None:
    first = compare(question(recurring=True, window=1, margin=1.5, failure_margin=0.02), rows(24))
    second = compare(question(recurring=True, window=2, margin=1.5, failure_margin=0.02), rows(25), [first.summary])
    assert [result.reasons[-1] for result in (first, second)] == [
        f"failures can be on either side of the margin of 2.0% with {groups} groups over all windows"
        for groups in (80, 160)
    ]


@pytest.mark.parametrize(
    ("groups", "promised"),
    [(216, " (about 217 would)"), (217, ""), (1_000, "")],
)
def test_no_number_below_the_groups_already_there_is_promised_without_failures(groups: int, promised: str) -> None:
    failures = FAILURES.model_copy(update={"champion_rate": 0.0, "candidate_rate": 0.0, "difference": 0.0})
    _, reasons = overall(question().rule, RATIOS, failures, FailureGrounds(groups, 0.0, 0.0), 1.0)
    assert reasons == (f"no failure, and {groups} groups cannot exclude 2.0% more of them{promised}",)


@pytest.mark.parametrize(("groups", "promised"), [(1_864, " (about 1865 would tell)"), (1_865, ""), (9_000, "")])
def test_no_number_below_the_groups_already_there_is_promised_with_failures(groups: int, promised: str) -> None:
    _, reasons = overall(question().rule, RATIOS, FAILURES, FailureGrounds(groups, 0.0, 0.0), 1.0)
    assert reasons == (f"failures can be on either side of the margin of 2.0% with {groups} groups{promised}",)


def test_conditions_of_the_servers_stand_in_the_strip_and_in_the_sentence() -> None:
    conditions = {
        "champion": Conditions(running=2.0, waiting=0.0),
        "candidate": Conditions(running=9.0, waiting=0.1, throttled_share=0.4),
    }
    result = compare(question(), rows(17), conditions=conditions)
    items = {item.item: item for item in result.fairness}
    assert (
        items["server-running"].champion,
        items["server-running"].candidate,
        items["server-running"].imbalanced,
    ) == (2.0, 9.0, True)
    assert (items["server-waiting"].imbalanced, items["throttled-share"].imbalanced) == (False, False)
    assert result.sentence.endswith("Not equal on both sides: load at the servers differs.")


def test_a_side_that_alone_is_reached_over_loopback_has_a_path_that_differs() -> None:
    forwarded = {"champion": Conditions(loopback=True), "candidate": Conditions(loopback=False)}
    result = compare(question(), rows(17), conditions=forwarded)
    items = {item.item: item for item in result.fairness}
    path = items["loopback-path"]
    assert (path.champion, path.candidate, path.unit, path.imbalanced) == (1.0, 0.0, "yes-no", True)
    assert result.sentence.endswith("Not equal on both sides: path differs (one side is reached over loopback).")
    for same in (Conditions(loopback=True), Conditions(loopback=False), Conditions()):
        alike = compare(question(), rows(17), conditions={"champion": same, "candidate": same})
        assert "path differs" not in alike.sentence


def test_a_recurring_study_is_ruled_on_its_sequence() -> None:
    earlier = []
    for window in range(4):
        result = compare(question(recurring=True, window=window, margin=1.15), rows(20 + window), earlier)
        assert result.sequence.windows == window + 1
        earlier.append(result.summary)
    assert result.sequence.earlier_windows == ("window-000", "window-001", "window-002")
    ttft = _ratio(result, "ttft")
    assert ttft.interval.method == "asymptotic-confidence-sequence"
    assert 0 < result.sequence.spent < result.sequence.alpha
    assert result.verdict == "no-worse"
    assert "and 4 windows." in result.sentence


def test_a_later_window_changes_nothing_of_an_earlier_one() -> None:
    later = compare(question(recurring=True, window=9), rows(30)).summary
    alone = compare(question(recurring=True, window=3), rows(31))
    assert compare(question(recurring=True, window=3), rows(31), [later]).to_json() == alone.to_json()


def test_a_single_look_of_a_recurring_study_is_wider_than_a_fixed_interval() -> None:
    fixed, sequence = (
        _ratio(compare(question(recurring=recurring), rows(32)), "ttft").interval for recurring in (False, True)
    )
    assert sequence.low < fixed.low
    assert sequence.high > fixed.high


def test_what_stands_beside_the_figures() -> None:
    assert asides(compare(question(), rows(33))) == ()
    assert asides(compare(question(recurring=True), rows(34, groups=40))) == (
        "TTFT p95, ITL p95, TPOT p95, E2E p95 shown only: 40 groups, a 95th percentile needs 60",
        "intervals hold over all looks, so far at 1 window; they have used 0.02% of an error of 5.0% per figure",
    )


@pytest.mark.parametrize(
    ("floor", "text"),
    [
        (None, "unavailable"),
        (0.0, "±0 %"),
        (0.0123, "±1.2 %"),
        (0.0994, "±9.9 %"),
        (0.0996, "±10 %"),
        (0.994, "±99 %"),
        (0.996, "±100 %"),
        (1.234, "±123 %"),
        (12.5, "±1,250 %"),
    ],
)
def test_a_noise_floor_is_a_plain_number_however_wide(floor: float | None, text: str) -> None:
    assert floor_text(floor) == text

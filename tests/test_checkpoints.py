"""The checkpoint rule, worked through by hand: returns in, verdicts and updates owed out."""

import math
from dataclasses import replace

import pytest

from td7.algorithms.checkpoints import Assessment, CheckpointRule, Verdict, after_updates, assess
from td7.algorithms.td7 import TD7Config

CONTINUE, TRAIN, CHECKPOINT = Verdict.CONTINUE, Verdict.TRAIN, Verdict.CHECKPOINT
RULE = CheckpointRule("minimum", True, 1, 3, 100, 0.9, starts_late_at_once=False)
START = Assessment()
LATE = Assessment(best=10.0, late=True)


def play(
    start: Assessment, *returns: float, rule: CheckpointRule = RULE
) -> tuple[Assessment, list[tuple[Verdict, int]]]:
    """Episode i has 100 + i steps, so that a sum of lengths shows which episodes count."""
    now, verdicts = start, []
    for i, episode_return in enumerate(returns):
        now, verdict, owed = assess(rule, now, episode_return, 100 + i)
        verdicts.append((verdict, owed))
    return now, verdicts


def test_td7s_rule_is_the_papers() -> None:
    assert TD7Config().checkpoint_rule == CheckpointRule(
        "minimum", True, 1, 20, 750_000, 0.9, starts_late_at_once=False
    )


def test_early_every_episode_is_an_assessment_and_a_tie_is_a_checkpoint() -> None:
    now, verdicts = play(START, 5.0, 3.0, 5.0, 7.0)
    assert verdicts == [(CHECKPOINT, 100), (TRAIN, 101), (CHECKPOINT, 102), (CHECKPOINT, 103)]
    assert now == Assessment(best=7.0)


def test_the_first_policy_is_a_checkpoint_however_bad() -> None:
    now, verdicts = play(START, -1e9)
    assert verdicts == [(CHECKPOINT, 100)]
    assert now.best == -1e9


def test_a_worse_episode_does_not_lower_the_best() -> None:
    assert play(START, 5.0, 3.0)[0] == Assessment(best=5.0)


def test_late_the_worst_of_all_episodes_counts_and_their_steps_add_up() -> None:
    now, verdicts = play(LATE, 12.0, 11.0, 13.0)
    assert verdicts == [(CONTINUE, 0), (CONTINUE, 0), (CHECKPOINT, 100 + 101 + 102)]
    assert now == replace(LATE, best=11.0)


def test_between_episodes_the_assessment_remembers() -> None:
    now, _ = play(LATE, 12.0, 11.0)
    assert now == replace(LATE, episodes=2, steps=201, min_return=11.0, sum_of_returns=23.0)


def test_late_a_bad_episode_ends_the_assessment_at_once() -> None:
    now, verdicts = play(LATE, 12.0, 9.0)
    assert verdicts == [(CONTINUE, 0), (TRAIN, 100 + 101)]
    assert now == LATE  # neither its minimum nor its steps remain


def test_late_a_bad_last_episode_is_no_checkpoint() -> None:
    assert play(LATE, 12.0, 12.0, 9.0)[1][-1] == (TRAIN, 303)


def test_late_a_tie_continues_and_ends_in_a_checkpoint() -> None:
    now, verdicts = play(LATE, 10.0, 10.0, 10.0)
    assert [verdict for verdict, _ in verdicts] == [CONTINUE, CONTINUE, CHECKPOINT]
    assert now == LATE


def test_assessments_follow_each_other() -> None:
    """Each verdict but CONTINUE starts a new one with a new minimum and its own steps."""
    now, verdicts = play(LATE, 9.0, 11.0, 12.0, 11.5, 10.0, 12.0, 12.0, 12.0)
    assert verdicts == [
        (TRAIN, 100),
        (CONTINUE, 0),
        (CONTINUE, 0),
        (CHECKPOINT, 101 + 102 + 103),  # best 11
        (TRAIN, 104),
        (CONTINUE, 0),
        (CONTINUE, 0),
        (CHECKPOINT, 105 + 106 + 107),
    ]
    assert now == replace(LATE, best=12.0)


def test_early_assessments_can_have_several_episodes() -> None:
    _, verdicts = play(START, 5.0, 6.0, 7.0, rule=replace(RULE, early_episodes=2))
    assert verdicts == [(CONTINUE, 0), (CHECKPOINT, 201), (CONTINUE, 0)]


@pytest.mark.parametrize(("at_once", "first"), [(False, 101), (True, 100)])
def test_the_late_stage_starts_after_early_updates_and_applies_the_weight_once(
    at_once: bool, first: int
) -> None:
    """The authors' program starts it before it makes the update that follows them."""
    rule = replace(RULE, starts_late_at_once=at_once)
    early = Assessment(best=10.0)
    assert after_updates(rule, early, first - 1) == early
    late = after_updates(rule, early, first)
    assert late == replace(LATE, best=9.0)
    assert after_updates(rule, late, first + 1) == late
    assert after_updates(rule, early, 1000) == late  # also if the call before was skipped


@pytest.mark.parametrize(("before", "after"), [(-10.0, -9.0), (0.0, 0.0), (-math.inf, -math.inf)])
def test_a_best_below_0_is_multiplied_as_it_is(before: float, after: float) -> None:
    assert after_updates(RULE, Assessment(best=before), 101).best == after


def test_a_mean_can_recover_from_one_bad_episode() -> None:
    """Means after each episode: 12, 10.5, 11: never below 10, though the second return is 9."""
    now, verdicts = play(LATE, 12.0, 9.0, 12.0, rule=replace(RULE, criterion="mean"))
    assert verdicts == [(CONTINUE, 0), (CONTINUE, 0), (CHECKPOINT, 303)]
    assert now == replace(LATE, best=11.0)


def test_a_mean_below_the_best_ends_an_assessment_of_variable_length() -> None:
    """Means 11, 9.5; the 100 that would follow is never played."""
    now, verdicts = play(LATE, 11.0, 8.0, rule=replace(RULE, criterion="mean"))
    assert verdicts == [(CONTINUE, 0), (TRAIN, 201)]
    assert now == LATE


@pytest.mark.parametrize(("criterion", "verdict"), [("minimum", TRAIN), ("mean", CHECKPOINT)])
def test_an_assessment_of_fixed_length_continues_after_bad_episodes(
    criterion: str, verdict: Verdict
) -> None:
    """Returns 5, 6, 100 against a best of 10: the minimum is 5, the mean 37."""
    rule = replace(RULE, criterion=criterion, ends_early=False)
    _, verdicts = play(LATE, 5.0, 6.0, 100.0, rule=rule)
    assert verdicts == [(CONTINUE, 0), (CONTINUE, 0), (verdict, 303)]

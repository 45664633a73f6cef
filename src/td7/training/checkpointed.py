"""Members with checkpoints: each collects, is assessed, trains and is evaluated on its own clock.

A member plays an episode, the checkpoint rule judges it, the member makes the updates that it owes
for it, and the next episode starts. What a member does depends on its own history alone; which
members happen to train in the same stacked update does not matter to any of them.
"""

import torch

from td7.algorithms.checkpoints import CheckpointRule, Verdict, after_updates, assess
from td7.engine.cuda import Fetch
from td7.rollouts.episodes import EpisodeResult, EpisodeTask
from td7.training.loop import SingleProcessTraining
from td7.training.parts import RunParts, RunSetup


class CheckpointedTraining(SingleProcessTraining):
    """Seeds do not wait for each other: while one plays its episode, the others train."""

    _has_checkpoints = True

    def __init__(self, setup: RunSetup, parts: RunParts) -> None:
        super().__init__(setup, parts)
        # What acts for each member now, or is on its way; None while the member trains.
        self._policies: list[Fetch | None] = [None] * len(self.members)

    def _rule(self, m: int) -> CheckpointRule:
        rule = self.config.online_of(m).checkpoint_rule
        if rule is None:
            raise ValueError("members without checkpoints train in lockstep")
        return rule

    def restore(self) -> bool:
        has_snapshot = super().restore()
        for m, member in enumerate(self.members):  # the late stage may start at once
            updates = self.engine.updates[m]
            member.assessment = after_updates(self._rule(m), member.assessment, updates)
        return has_snapshot

    def _advance(self) -> None:
        self._submit_tasks()
        self._record_results(block=self._must_wait())
        self._train()

    def _must_wait(self) -> bool:
        """Whether nothing can be done before a worker answers."""
        return all(member.collecting or member.finished for member in self.members)

    def _submit_tasks(self) -> None:
        """Evaluate every idle member if that is due, and start its next episode."""
        for m, member in enumerate(self.members):
            if member.collecting or member.finished or member.owed:
                continue
            self._schedule_evaluations(m, member.steps)
            member.finished |= member.steps >= self.config.steps
            if member.finished:
                continue
            policy = None
            if not self._acts_at_random(m):
                fetch = self._policy(m)
                if not fetch.is_ready():
                    continue
                policy = self._retirement.weights(m, fetch)
                if policy is None:
                    continue
            self.executor.submit(
                EpisodeTask(
                    seed=self.config.seeds[m],
                    episode=member.episodes,
                    limit=self.config.steps - member.steps,
                    policy=policy,
                    exploration=self._explorations[m],
                    number=self.config.members.number(m),
                )
            )
            member.collecting = True

    def _record_episode(self, result: EpisodeResult) -> None:
        task, episode = result.task, result.episode
        m = self.config.members.ids.index(task.member)
        member = self.members[m]
        self.clock.add("collect", result.seconds)
        member.collecting = False
        if member.fault:  # it has ended since the episode began
            return
        end = member.steps + episode.length
        if not episode.finished:
            # The end of the run cut it. It is discarded, so that a run that is later extended
            # plays it whole and is the same as one that was longer from the start.
            self._schedule_evaluations(m, end)
            member.finished = True
            return
        # An evaluation due within the episode uses the policies of its beginning.
        self._schedule_evaluations(m, end - 1)
        is_before_training = self._is_before_training(m)
        row = (member.id, end, member.episodes, repr(episode.episode_return), episode.length)
        self._append("episodes", [row])
        with self._changing():
            self.engine.append(m, episode.rows)
            member.steps = end
            member.episodes += 1
            if not is_before_training:  # or else it is neither assessed nor trained for
                member.assessment, verdict, member.owed = assess(
                    self._rule(m), member.assessment, episode.episode_return, episode.length
                )
                if verdict is Verdict.CHECKPOINT and task.policy is not None:
                    self.checkpoints[m] = task.policy

    def _train(self) -> None:
        """Make some of the updates that members owe."""
        if not any(member.owed for member in self.members):
            return
        before = list(self.engine.updates)
        with self._changing():
            with self.clock.phase("update"):
                self.engine.advance([self._updates_until_due(m) for m in range(len(self.members))])
            for m, member in enumerate(self.members):
                updates = self.engine.updates[m]
                if updates == before[m]:
                    continue
                member.owed -= updates - before[m]
                member.assessment = after_updates(self._rule(m), member.assessment, updates)
                self._policies[m] = None if member.owed else self.engine.fetch_policy(m)
                self._fetch_metrics_if_due(m)
        self._write_metrics(wait=False)

    def _updates_until_due(self, m: int) -> int:
        """How many updates a member makes before its next episode or row of metrics is due."""
        every = self.config.metrics_every
        return min(self.members[m].owed, every - self.engine.updates[m] % every)

    def _policy(self, m: int) -> Fetch:
        """The flat weights that act for a member now."""
        fetch = self._policies[m]
        if fetch is None:
            fetch = self._policies[m] = self.engine.fetch_policy(m)
        return fetch

    def _evaluated_policy(self, m: int) -> Fetch:
        if self.config.online.test_policy == "current":
            return self._policy(m)
        return Fetch(torch.from_numpy(self.checkpoints[m]))

    def _activity(self, m: int) -> str:
        member = self.members[m]
        if member.owed:
            return f"training, {member.owed:,} updates to go"
        if self._acts_at_random(m):
            return "exploring at random"
        return f"playing episode {member.episodes:,}"

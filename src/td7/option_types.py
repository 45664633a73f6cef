"""Every option and hyperparameter as a typed keyword argument, for editors and type checkers.

`make option-types` writes this file from the options and the algorithms' configs.
"""

from collections.abc import Iterable
from typing import TypedDict

from td7.rollouts.callables import MakeTask
from td7.types import AnyPath, Settings, Space, Varied, Wrapper


class Hyperparameters(TypedDict, total=False):
    """The union over all algorithms."""

    discount: float
    """discount factor gamma"""
    batch_size: int
    """transitions per update"""
    learning_rate: float
    """Adam's learning rate, for every network – td7, td3, td3+ofe, sac, tqc, td3+bc, iql, xql;
    Adam's learning rate, for the critics – cql"""
    random_steps: int
    """time steps of uniformly random actions before training; with --start-from, of the other run's
    policy – td7, td3, td3+ofe, sac, tqc, td3+bc"""
    random_phase: str
    """when the random actions end: after the episode that reaches `random_steps`, or exactly at
    that step; with checkpoints always after an episode (episode, steps) – td7, td3, td3+ofe, sac,
    tqc, td3+bc"""
    replay_capacity: int
    """transitions kept per seed – td7, td3, td3+ofe, sac, tqc, td3+bc"""
    checkpoints: str
    """how a policy is assessed; none: no checkpoints, one update after every time step (minimum,
    mean, none) – td7, td3, td3+ofe, sac, tqc, td3+bc"""
    assessments_end_early: bool
    """end an assessment as soon as it is worse than the checkpoint – td7, td3, td3+ofe, sac, tqc,
    td3+bc"""
    early_assessment_episodes: int
    """episodes per assessment, early stage – td7, td3, td3+ofe, sac, tqc, td3+bc"""
    late_assessment_episodes: int
    """episodes per assessment, late stage – td7, td3, td3+ofe, sac, tqc, td3+bc"""
    early_updates: int
    """updates after which the late stage starts – td7, td3, td3+ofe, sac, tqc, td3+bc"""
    late_stage: str
    """when the late stage starts: with the update after the `early_updates` first ones, as in the
    authors' program, or right after them (next_update, at_once) – td7, td3, td3+ofe, sac, tqc,
    td3+bc"""
    criterion_reset_weight: float
    """factor on the checkpoint's criterion when the late stage starts – td7, td3, td3+ofe, sac,
    tqc, td3+bc"""
    test_policy: str
    """policy that evaluations use, if there are checkpoints (checkpoint, current) – td7, td3,
    td3+ofe, sac, tqc, td3+bc"""
    exploration_noise: float
    """standard deviation of the noise on actions in [-1, 1] – td7, td3, td3+ofe, td3+bc"""
    target_every: int
    """updates between copies to the target networks – td7, td3, td3+ofe, td3+bc; updates between
    copies to SALE's fixed encoders – sac, tqc"""
    hidden_dim: int
    """width of every hidden layer – td7, td3, td3+ofe, td3+bc, cql, iql, xql"""
    critic_activation: str
    """activation in the critics (elu, relu) – td7, td3, td3+ofe, td3+bc"""
    target_noise: float
    """standard deviation of the target policy's noise, sigma – td7, td3, td3+ofe, td3+bc"""
    target_noise_clip: float
    """bound on the target policy's noise, c – td7, td3, td3+ofe, td3+bc"""
    actor_every: int
    """updates between actor updates – td7, td3, td3+ofe, td3+bc"""
    actor_value: str
    """critics that the actor maximises: the mean of both, or the first (mean, first) – td7, td3,
    td3+ofe, td3+bc"""
    replay: str
    """lap: prioritised, with LAP's Huber loss; uniform: with the squared error (lap, uniform) –
    td7, td3, td3+ofe, td3+bc"""
    priority_exponent: float
    """exponent of the priorities, alpha in LAP – td7, td3, td3+ofe, td3+bc"""
    min_priority: float
    """minimum |TD error| of a priority, and where the Huber loss becomes linear – td7, td3,
    td3+ofe, td3+bc"""
    value_clipping: bool
    """clip target values to the range of value targets seen – td7, td3, td3+ofe, td3+bc"""
    embedding_dim: int
    """width of the embeddings zs and zsa – td7, td3, sac, tqc, td3+bc"""
    critic_inputs: str | Iterable[str]
    """what the critics read; phi: a linear layer of (s, a) with a norm; sa: the raw (s, a) (zsa,
    zs, phi, sa) – td7"""
    actor_inputs: str | Iterable[str]
    """what the actor reads; phi: a linear layer of s with a norm; s: the raw state (zs, phi, s) –
    td7"""
    critic_phi_dim: int
    """phi's width in the critics; 0: hidden_dim – td7"""
    zs_norm: str
    """norm of zs (none, avg_l1, layer, batch) – td7"""
    zsa_norm: str
    """norm of zsa (none, avg_l1, layer, batch) – td7"""
    phi_norm: str
    """norm of every phi (none, avg_l1, layer, batch) – td7"""
    learning_target: str
    """what zsa predicts (next_zs, slow_next_zs, next_state, next_zs_and_reward, next_zsa) – td7"""
    encoder_loss: str
    """loss between zsa and its target (mse, cosine) – td7"""
    encoder_training: str
    """the encoder learns from its own loss, jointly with the critics, or not at all (decoupled,
    end_to_end, frozen) – td7"""
    encoder_loss_weight: float
    """weight of the encoder's loss in end-to-end training, beta – td7"""
    fixed_embeddings: bool
    """critics and actor read the previous encoder – td7"""
    cloning_weight: float
    """behaviour cloning weight, lambda (offline: 0.1) – td7"""
    target_update: str
    """how targets follow: with every actor update, or copied every `target_every` updates (polyak,
    copy) – td3, td3+bc"""
    target_rate: float
    """Polyak rate of the target networks, tau – td3, td3+ofe, td3+bc; Polyak rate of the target
    critics, tau – sac, tqc, cql, iql, xql"""
    encoder: bool
    """SALE's encoder as part of the critics, trained by their loss – td3, td3+bc"""
    ofe_features: int
    """learned features of s, and as many of (s, a) – td3+ofe"""
    ofe_layers: int
    """layers per block; 0: the paper's number for its tasks, 6 for others – td3+ofe"""
    ofe_predicted_dims: int
    """leading dimensions of s' to predict; 0: 292 for Humanoid-v4, all for others – td3+ofe"""
    actor_hidden_dim: int
    """width of the actor's hidden layers – sac, tqc"""
    target_entropy_per_dimension: float
    """target entropy of the policy per action dimension – sac, tqc, cql"""
    sale: bool
    """critics and actor read SALE's embeddings, as in TD7 – sac, tqc"""
    critic_hidden_dim: int
    """width of the critics' hidden layers – sac, tqc"""
    critics: int
    """critic networks – tqc"""
    quantiles: int
    """quantiles per critic – tqc"""
    dropped_quantiles: int
    """largest quantiles dropped per critic; -1: the paper's number for its tasks, 2 for others –
    tqc"""
    cloning_alpha: float
    """weight of Q / mean |Q| relative to cloning, alpha – td3+bc"""
    policy_learning_rate: float
    """Adam's learning rate, for policy and temperature – cql"""
    hidden_layers: int
    """hidden layers per network – cql"""
    conservative_weight: float
    """weight of the conservative loss – cql"""
    sampled_actions: int
    """sampled actions of each kind: uniform, pi(s') and pi(s) – cql"""
    cloning_updates: int
    """update from which on the policy maximises values; before, it clones – cql"""
    advantage_temperature: float
    """factor in the cloning weights exp(factor (q - v)) – iql, xql"""
    largest_weight: float
    """maximum of the cloning weights – iql, xql"""
    decay_updates: int
    """updates over which the policy's learning rate falls to 0 along a cosine – iql, xql"""
    expectile: float
    """expectile of q that v learns – iql"""
    gumbel_temperature: float
    """temperature of the Gumbel regression, beta – xql"""
    gumbel_clip: float
    """maximum of (q - v) / beta – xql"""
    huber_threshold: float
    """|error| from which the critics' loss is linear – xql"""


class TrainKeywords(Hyperparameters, total=False):
    """Of `td7.train`."""

    variant: str
    """row of a study to train, as STUDY/LABEL; see `td7 list studies`; MODULE:NAME/LABEL for a
    study of your own"""
    env: str | MakeTask
    """Gymnasium id of the task; see `td7 list tasks` (default with `dataset`: the dataset's)"""
    env_kwargs: Settings
    """keyword arguments of the task, e.g. max_episode_steps=200; values are read as JSON where
    possible, otherwise as text"""
    wrapper: str | type | Wrapper | Iterable[str | type | Wrapper]
    """gymnasium.Wrapper around the task, as MODULE:CLASS or, with keyword arguments,
    MODULE:CLASS:JSON; the first is the innermost"""
    dataset: AnyPath
    """dataset to learn from, instead of collecting data: a D4RL file, a Minari id or folder"""
    steps: int
    """environment steps per seed; with `dataset`, updates per seed (default: 1_000_000)"""
    seeds: int | str | Iterable[int]
    """seeds to train side by side, e.g. 0-9 or 0 3 7 (default: 0)"""
    set: Settings
    """hyperparameters, e.g. batch_size=128 discount=0.9; see `td7 train ALGORITHM --help`"""
    vary: Varied
    """hyperparameters with several values, e.g. learning_rate=1e-4,3e-4: every combination is
    trained with every seed, side by side"""
    start_from: AnyPath
    """run whose learner to begin with, of the same algorithm (default: new networks); the replay
    begins empty"""
    normalise_observations: bool
    """normalise observations by their running mean and standard deviation (the paper does not)"""
    evaluate_every: int
    """steps (or updates) between evaluations (default: 5_000)"""
    evaluation_episodes: int
    """episodes per evaluation (default: 10)"""
    metrics_every: int
    """updates between rows of metrics.csv (default: 1_000)"""
    keep_policies: int
    """steps (or updates) between evaluated policies to keep, a multiple of `evaluate_every`; 0
    keeps only the last policies"""
    out: AnyPath
    """run folder (default: runs/ALGORITHM-TASK-TIME)"""
    snapshot_every: float
    """minutes between snapshots for resuming; 0 saves only when the run stops or ends (default:
    5.0)"""
    tensorboard: bool
    """also write TensorBoard event files to RUN/tensorboard"""
    wandb: str
    """log to this project of Weights & Biases, or ENTITY/PROJECT; WANDB_MODE=offline in the
    environment only writes files, for `wandb sync`"""
    mlflow: str
    """log to MLflow: http://HOST:PORT, file:FOLDER or another tracking URI"""
    quiet: bool
    """print only warnings"""
    device: str
    """auto, cpu or cuda (auto: cuda if available, otherwise cpu; default: auto)"""
    replay_device: str
    """where transitions are stored: auto (on the learner's device), or cpu to save GPU memory
    (default: auto)"""
    workers: int | str
    """processes that play episodes; 0 plays them in the learner's process, between updates (auto: 0
    on a cpu; on cuda one per seed and five for evaluation, as cores allow; default: auto)"""
    step_timeout: float
    """seconds that one environment step may take in a worker, which is then replaced, once per
    episode; after that, the run is saved and ends (0: no limit; no effect with `workers` 0;
    default: 600.0)"""
    processes: int | str
    """on a cpu, learner processes that share the seeds; affects the last digits of results (auto:
    from 50_000 updates on one per seed, at most five per core; otherwise 1; default: auto)"""
    threads: int | str
    """on a cpu, PyTorch threads per process; affects the last digits of results (auto: 1 for small
    networks, otherwise all cores; default: auto)"""
    precision: str
    """precision of the learner: auto, float32 or float64 (auto: float32, on cuda with TF32 matrix
    products, which float32 avoids; default: auto)"""
    engine: str
    """how updates run: auto, eager, compiled or graph (auto: graph on cuda; on a cpu compiled from
    20_000 updates on, as compiling takes about a minute, otherwise eager; default: auto)"""


class StudyKeywords(Hyperparameters, total=False):
    """Of `td7.study`."""

    rows: str | Iterable[str]
    """rows to run, by label (default: all); see `td7 list studies NAME`"""
    env: str | Iterable[str]
    """tasks, as A,B; offline, datasets by name or path (default: those of the paper)"""
    env_kwargs: Settings
    """keyword arguments of the task, e.g. max_episode_steps=200; values are read as JSON where
    possible, otherwise as text"""
    wrapper: str | type | Wrapper | Iterable[str | type | Wrapper]
    """gymnasium.Wrapper around the task, as MODULE:CLASS or, with keyword arguments,
    MODULE:CLASS:JSON; the first is the innermost"""
    seeds: int | str | Iterable[int]
    """seeds of each row on each task (default: 0-9)"""
    steps: int
    """environment steps (offline: updates) per seed; 0 runs as many as the paper"""
    set: Settings
    """hyperparameters, for each row whose algorithm has a hyperparameter by that name"""
    datasets: AnyPath
    """folder of the D4RL files that the offline study reads (default: datasets)"""
    evaluate_every: int
    """steps (or updates) between evaluations (default: 5_000)"""
    evaluation_episodes: int
    """episodes per evaluation (default: 10)"""
    metrics_every: int
    """updates between rows of metrics.csv (default: 1_000)"""
    keep_policies: int
    """steps (or updates) between evaluated policies to keep, a multiple of `evaluate_every`; 0
    keeps only the last policies"""
    snapshot_every: float
    """minutes between snapshots for resuming; 0 saves only when the run stops or ends (default:
    5.0)"""
    wandb: str
    """log to this project of Weights & Biases, or ENTITY/PROJECT; WANDB_MODE=offline in the
    environment only writes files, for `wandb sync`"""
    mlflow: str
    """log to MLflow: http://HOST:PORT, file:FOLDER or another tracking URI"""
    out: AnyPath
    """folder of the study's runs (default: studies/NAME)"""
    quiet: bool
    """print only the outcome"""
    device: str
    """auto, cpu or cuda (auto: cuda if available, otherwise cpu; default: auto)"""
    engine: str
    """how updates run: auto, eager, compiled or graph (auto: graph on cuda; on a cpu compiled from
    20_000 updates on, as compiling takes about a minute, otherwise eager; default: auto)"""
    workers: int | str
    """processes that play episodes; 0 plays them in the learner's process, between updates (auto: 0
    on a cpu; on cuda one per seed and five for evaluation, as cores allow; default: auto)"""
    at_once: int
    """runs at the same time on this machine (default: 1)"""
    seeds_each: int
    """seeds per run; 0 trains all seeds in one run. On a cpu, several runs with few seeds each
    (`at_once`) are faster"""
    backend: str
    """where runs are trained: local, or ray for a cluster (default: local)"""
    address: str
    """address of the Ray cluster, e.g. auto (default: a cluster of this machine alone)"""
    cpus: float
    """CPU cores of the cluster per run (default: 1.0)"""
    gpus: float | str
    """GPUs of the cluster per run; 0.5 lets two runs share one (auto: 1 with `device` cuda,
    otherwise 0; default: auto)"""


class TuneKeywords(Hyperparameters, total=False):
    """Of `td7.tune`."""

    env: str | MakeTask
    """Gymnasium id of the task; see `td7 list tasks` (default with `dataset`: the dataset's)"""
    env_kwargs: Settings
    """keyword arguments of the task, e.g. max_episode_steps=200; values are read as JSON where
    possible, otherwise as text"""
    wrapper: str | type | Wrapper | Iterable[str | type | Wrapper]
    """gymnasium.Wrapper around the task, as MODULE:CLASS or, with keyword arguments,
    MODULE:CLASS:JSON; the first is the innermost"""
    dataset: AnyPath
    """dataset to learn from, instead of collecting data: a D4RL file, a Minari id or folder"""
    steps: int
    """environment steps of the best trials; with `dataset`, updates (default: 100_000)"""
    seeds: int | str | Iterable[int]
    """seeds of every trial (default: 0-2)"""
    trials: int
    """sets of hyperparameters to try (default: 64)"""
    search: Space
    """what to search, e.g. learning_rate=1e-4..1e-3:log or discount=0.97,0.99; replaces or adds to
    the algorithm's usual ranges, see `td7 tune ALGORITHM --help`"""
    search_only: bool
    """search nothing but what `search` names"""
    set: Settings
    """hyperparameters that all trials have, e.g. batch_size=128; not searched"""
    sampler: str
    """how trials are chosen, by Optuna (tpe, random, qmc, gp; default: tpe)"""
    sampler_seed: int
    """seed of that choice"""
    pruner: str
    """which trials end early: halving, all but the best at each rung; median, those below the
    median of finished ones (halving, median, none; default: halving)"""
    reduction: int
    """steps between rungs grow, and trials shrink, by this factor (default: 3)"""
    wave: int | str
    """trials that train side by side in one run (auto: as many as fill the device; default:
    auto)"""
    normalise_observations: bool
    """normalise observations by their running mean and standard deviation (the paper does not)"""
    evaluate_every: int
    """steps (or updates) between evaluations (default: 5_000)"""
    evaluation_episodes: int
    """episodes per evaluation (default: 10)"""
    metrics_every: int
    """updates between rows of metrics.csv (default: 1_000)"""
    out: AnyPath
    """folder of the search (default: tune/ALGORITHM-TASK)"""
    snapshot_every: float
    """minutes between snapshots for resuming; 0 saves only when the run stops or ends (default:
    5.0)"""
    quiet: bool
    """print only warnings and the result"""
    device: str
    """auto, cpu or cuda (auto: cuda if available, otherwise cpu; default: auto)"""
    replay_device: str
    """where transitions are stored: auto (on the learner's device), or cpu to save GPU memory
    (default: auto)"""
    workers: int | str
    """processes that play episodes; 0 plays them in the learner's process, between updates (auto: 0
    on a cpu; on cuda one per seed and five for evaluation, as cores allow; default: auto)"""
    step_timeout: float
    """seconds that one environment step may take in a worker, which is then replaced, once per
    episode; after that, the run is saved and ends (0: no limit; no effect with `workers` 0;
    default: 600.0)"""
    processes: int | str
    """on a cpu, learner processes that share the seeds; affects the last digits of results (auto:
    from 50_000 updates on one per seed, at most five per core; otherwise 1; default: auto)"""
    threads: int | str
    """on a cpu, PyTorch threads per process; affects the last digits of results (auto: 1 for small
    networks, otherwise all cores; default: auto)"""
    precision: str
    """precision of the learner: auto, float32 or float64 (auto: float32, on cuda with TF32 matrix
    products, which float32 avoids; default: auto)"""
    engine: str
    """how updates run: auto, eager, compiled or graph (auto: graph on cuda; on a cpu compiled from
    20_000 updates on, as compiling takes about a minute, otherwise eager; default: auto)"""

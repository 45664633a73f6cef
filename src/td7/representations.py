"""SALE: state-action learned embeddings. A component that any algorithm can be given."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from td7.architectures import Layer, Layout, Network, mlp
from td7.networks import BatchStatistics, apply, values


@dataclass(frozen=True)
class Sale:
    """The encoder pair zs = f(s), zsa = g(zs, a) as two network descriptions."""

    f: Network
    g: Network  # has the layer "zsa"; perhaps also "reward", which predicts it

    @classmethod
    def of(
        cls,
        state_dim: int,
        action_dim: int,
        zs_dim: int,
        hidden_dim: int,
        *,
        zsa_dim: int | None = None,
        zs_norm: str = "avg_l1",
        zsa_norm: str = "none",
        predicts_reward: bool = False,
    ) -> "Sale":
        """Three layers each; zsa is as wide as zs unless said otherwise."""
        hidden, zsa = (hidden_dim, hidden_dim), zsa_dim or zs_dim
        f = mlp({"state": state_dim}, ("f1", "f2", "zs"), (*hidden, zs_dim), "elu", zs_norm)
        reads = {"zs": zs_dim, "action": action_dim}
        g = mlp(reads, ("g1", "g2", "zsa"), (*hidden, zsa), "elu", zsa_norm)
        if predicts_reward:
            g = Network(g.inputs, (*g.layers, Layer("reward", ("g2",), 1)))
        return cls(f, g)

    @property
    def layout(self) -> Layout:
        """f comes first, so that f alone is a prefix of the encoder's flat parameters."""
        return Layout.of(self.f, self.g)

    def zs(
        self,
        encoder: Mapping[str, Tensor],
        state: Tensor,
        statistics: BatchStatistics | None = None,
    ) -> Tensor:
        return apply(self.f, encoder, statistics, state=state)

    def zsa(self, encoder: Mapping[str, Tensor], zs: Tensor, action: Tensor) -> Tensor:
        return values(self.g, encoder, zs=zs, action=action)["zsa"]

    def predicted(
        self,
        encoder: Mapping[str, Tensor],
        zs: Tensor,
        action: Tensor,
        statistics: BatchStatistics | None = None,
    ) -> dict[str, Tensor]:
        """What g predicts of the next step: "zsa", and "reward" where it does."""
        return values(self.g, encoder, statistics, zs=zs, action=action)

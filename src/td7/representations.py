"""SALE: state-action learned embeddings. A component that any algorithm can be given."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from td7.architectures import Layout, Network, mlp
from td7.networks import apply


@dataclass(frozen=True)
class Sale:
    """The encoder pair zs = f(s), zsa = g(zs, a) as two network descriptions."""

    f: Network
    g: Network

    @classmethod
    def of(cls, state_dim: int, action_dim: int, embedding_dim: int, hidden_dim: int) -> "Sale":
        widths = (hidden_dim, hidden_dim, embedding_dim)
        return cls(
            f=mlp({"state": state_dim}, ("f1", "f2", "zs"), widths, "elu", last_norm="avg_l1"),
            g=mlp({"zs": embedding_dim, "action": action_dim}, ("g1", "g2", "zsa"), widths, "elu"),
        )

    @property
    def layout(self) -> Layout:
        """f comes first, so that f alone is a prefix of the encoder's flat parameters."""
        return Layout.of(self.f, self.g)

    def zs(self, encoder: Mapping[str, Tensor], state: Tensor) -> Tensor:
        return apply(self.f, encoder, state=state)

    def zsa(self, encoder: Mapping[str, Tensor], zs: Tensor, action: Tensor) -> Tensor:
        return apply(self.g, encoder, zs=zs, action=action)

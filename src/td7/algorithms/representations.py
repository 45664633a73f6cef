"""SALE and OFENet: learned features that any algorithm can use.

Glossary:
    f, zs       SALE's encoder of a state, zs = f(s)
    g, zsa      its encoder of a state and an action, zsa = g(zs, a)
    zs, zsa     OFENet's features of s and of (s, a): named values, which include s and a
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from td7.networks.description import Layer, Layout, Network, mlp
from td7.networks.stacked import BatchStatistics, apply, values


@dataclass(frozen=True)
class Sale:
    """The encoder pair zs = f(s), zsa = g(zs, a) as two network descriptions."""

    f: Network
    g: Network  # has the layer "zsa", and with `predicts_reward` the layer "reward"

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
        """Three layers each; zsa is as wide as zs by default."""
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

    def predictions(
        self,
        encoder: Mapping[str, Tensor],
        zs: Tensor,
        action: Tensor,
        statistics: BatchStatistics | None = None,
    ) -> dict[str, Tensor]:
        """The outputs of g: "zsa" and, with `predicts_reward`, "reward"."""
        return values(self.g, encoder, statistics, zs=zs, action=action)


@dataclass(frozen=True)
class OFENet:
    """Dense blocks: every layer reads all values before it, with batch norm and swish.

    zs is the state and the layers of the first block; zsa is zs, the action and the layers of the
    second block. A last linear layer on zsa predicts the next state.
    """

    state_block: Network
    action_block: Network  # its last layer is "next_state"

    @classmethod
    def of(
        cls, state_dim: int, action_dim: int, features: int, layers: int, predicted_dim: int
    ) -> "OFENet":
        """`features` per block, spread over its layers."""
        width = features // layers
        state_block = _dense({"state": state_dim}, "s", layers, width)
        zs = state_block.widths()
        block = _dense({"action": action_dim, **zs}, "sa", layers, width)
        last = Layer("next_state", tuple(block.widths()), predicted_dim)
        return cls(state_block, Network(block.inputs, (*block.layers, last)))

    @property
    def layout(self) -> Layout:
        """The state's block comes first, so that it alone is a prefix of the flat parameters."""
        return Layout.of(self.state_block, self.action_block)

    @property
    def zs_widths(self) -> dict[str, int]:
        return self.state_block.widths()

    @property
    def zsa_widths(self) -> dict[str, int]:
        widths = self.action_block.widths()
        del widths["next_state"]
        return widths

    def zs(
        self,
        net: Mapping[str, Tensor],
        state: Tensor,
        statistics: BatchStatistics | None = None,
    ) -> dict[str, Tensor]:
        features = {"state": state, **values(self.state_block, net, statistics, state=state)}
        return {name: features[name] for name in self.zs_widths}

    def zsa(
        self, net: Mapping[str, Tensor], zs: Mapping[str, Tensor], action: Tensor
    ) -> dict[str, Tensor]:
        features = {"action": action, **zs, **values(self.action_block, net, action=action, **zs)}
        return {name: features[name] for name in self.zsa_widths}

    def next_state(
        self,
        net: Mapping[str, Tensor],
        zs: Mapping[str, Tensor],
        action: Tensor,
        statistics: BatchStatistics | None = None,
    ) -> Tensor:
        """The predicted next state."""
        return values(self.action_block, net, statistics, action=action, **zs)["next_state"]


def _dense(inputs: Mapping[str, int], name: str, layers: int, width: int) -> Network:
    block: list[Layer] = []
    for i in range(1, layers + 1):
        reads = (*inputs, *(layer.output for layer in block))
        block.append(Layer(f"{name}{i}", reads, width, norm="batch", activation="swish"))
    return Network(inputs, tuple(block))

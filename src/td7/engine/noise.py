"""The random numbers of updates, as data: block b of a member is a function of (seed, b)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from td7.algorithms.learner import Learner
from td7.seeding import Stream, derived_seed

NOISE_BLOCK = 250  # updates drawn at once; part of every result, like the stream numbers


class Noise:
    """Every member's current block of random numbers."""

    def __init__(
        self, learner: Learner, batch_size: int, seeds: Sequence[int], like: Tensor
    ) -> None:
        """Normals have the device and type of `like` [S, ...]; members beyond seeds are padding."""
        self._seeds = seeds
        self._generator = torch.Generator(like.device)
        shape = (len(like), NOISE_BLOCK)
        self.uniforms = like.new_zeros(*shape, batch_size, dtype=torch.float64)
        self.normals = {
            name: like.new_zeros(*shape, *size) for name, size in learner.noise_shapes.items()
        }
        self._blocks = [-1] * len(seeds)
        self._member = torch.arange(len(like), device=like.device)

    def prepare(self, member: int, count: int) -> None:
        """Draw the block that holds the member's update number `count`, if it is not there."""
        block = count // NOISE_BLOCK
        if block == self._blocks[member]:
            return
        self._generator.manual_seed(derived_seed(self._seeds[member], Stream.UPDATE, block))
        self.uniforms[member].uniform_(generator=self._generator)
        for normals in self.normals.values():
            normals[member].normal_(generator=self._generator)
        self._blocks[member] = block

    def room(self, count: int) -> int:
        """How many updates, from number `count` on, the block holds."""
        return NOISE_BLOCK - count % NOISE_BLOCK

    def at(self, counts: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Uniforms [S, B] to sample with and normals [S, ...], of updates number `counts` [S]."""
        index = counts % NOISE_BLOCK
        normals = {name: x[self._member, index] for name, x in self.normals.items()}
        return self.uniforms[self._member, index], normals

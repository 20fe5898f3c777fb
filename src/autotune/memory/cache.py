"""A shape and a launch in, how KV memory becomes blocks and tokens out."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.memory.launch import Launch
from autotune.memory.shape import ModelShape
from autotune.memory.weights import ceil_div, kv_heads_per_device, stage_layers


# Kinds of layers whose numbers differ by less are padded to the larger one.
_PADDING_RATIO = 1.5


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """How the engine cuts KV memory.

    Layers of one kind are split into groups of equal size; a block holds
    ``block_size`` tokens for one group, and every group draws from one pool.

    Attributes:
        page_bytes: One layer's share of a block.
        group_size: Layers per group, padding included.
        windows: The sliding window of each group, None where attention is full.
        block_size: Tokens per block.
        in_flight_tokens: Tokens a request may hold beyond its window.
    """

    page_bytes: int
    group_size: int
    windows: tuple[int | None, ...]
    block_size: int
    in_flight_tokens: int

    @property
    def block_bytes(self) -> int:
        """Memory of one block of the pool."""
        return self.page_bytes * self.group_size

    def blocks(self, kv_bytes: int) -> int:
        """Whole blocks that fit into ``kv_bytes``."""
        return max(0, kv_bytes) // self.block_bytes

    def blocks_per_request(self, length: int) -> int:
        """Blocks that one request of ``length`` tokens may hold at once."""
        return sum(self._group_blocks(window, length) for window in self.windows)

    def request_bytes(self, length: int) -> int:
        """KV memory that one request of ``length`` tokens needs."""
        return self.blocks_per_request(length) * self.block_bytes

    def tokens(self, blocks: int, *, length: int) -> int:
        """Tokens held by ``blocks`` when every request is ``length`` long."""
        return blocks * length // self.blocks_per_request(length)

    def blocks_of_tokens(self, tokens: int, *, length: int) -> int:
        """The inverse of ``tokens``, as far as rounding allows."""
        return ceil_div(tokens * self.blocks_per_request(length), length)

    def _group_blocks(self, window: int | None, length: int) -> int:
        if window is None:
            return ceil_div(length, self.block_size)
        held = min(window - 1 + self.in_flight_tokens, length)
        # One more: a window need not begin where a block does.
        return ceil_div(held, self.block_size) + 1


def read_layout(shape: ModelShape, launch: Launch) -> CacheLayout:
    """The layout on the device that holds most layers."""
    layers = shape.windows[: stage_layers(shape, pipeline=launch.pipeline)]
    group_size, windows = _groups(layers)
    return CacheLayout(
        page_bytes=_token_bytes(shape, launch) * launch.block_size,
        group_size=group_size,
        windows=windows,
        block_size=launch.block_size,
        in_flight_tokens=launch.in_flight_tokens,
    )


def _token_bytes(shape: ModelShape, launch: Launch) -> int:
    """KV bytes of one token in one layer on one device."""
    latent = shape.latent
    if latent:
        width = latent.cache_rank + latent.rotary_dim
        return width * launch.cache_element_bytes + latent.index_bytes
    heads = kv_heads_per_device(shape, tensor=launch.tensor)
    return 2 * heads * shape.head_dim * launch.cache_element_bytes


def _groups(layers: tuple[int | None, ...]) -> tuple[int, tuple[int | None, ...]]:
    kinds = dict.fromkeys(layers)
    counts = [layers.count(kind) for kind in kinds]
    few, many = min(counts), max(counts)
    size = many if many < few * _PADDING_RATIO else few
    windows = (
        kind
        for kind, count in zip(kinds, counts, strict=True)
        for _ in range(ceil_div(count, size))
    )
    return size, tuple(windows)

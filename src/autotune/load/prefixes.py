"""Prompts that share their beginnings, and what a prefix cache can make of them.

Sources of requests: a count and a generator in, shapes out. Planned requests in,
the tokens that a prefix cache would answer out.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autotune.domain.request import PlannedRequest
from autotune.domain.workload import RequestShape, Segment
from autotune.errors import InputError
from autotune.load.lengths import Fixed, Lengths, Uniform


# What vLLM uses on a GPU unless told otherwise.
USUAL_BLOCK_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Independent:
    """Prompts that have nothing in common."""

    prompt: Lengths
    output: Lengths

    @property
    def context_tokens(self) -> int:
        """The longest sequence it can make, in tokens."""
        return self.prompt.longest + self.output.longest

    def shapes(
        self,
        count: int,
        *,
        block: int,  # noqa: ARG002 - the seam's signature
        draw: random.Random,
    ) -> tuple[RequestShape, ...]:
        """``count`` requests of a block in the order they are sent."""
        return tuple(
            RequestShape(
                (Segment(f"own{i}", self.prompt.draw(draw)),), self.output.draw(draw), i
            )
            for i in range(count)
        )


# Long documents in, a summary out.
LONG_CONTEXT = Independent(Uniform(8 * 1024, 120_000), Fixed(256))


@dataclass(frozen=True, slots=True)
class SharedPrefixes:
    """Several system prompts, each followed by what a user asks.

    Attributes:
        groups: System prompts, equally popular.
        prefix_tokens: Length of each, in tokens.
        own: What follows the system prompt, in tokens.
        output: Tokens to generate.
        share: Of requests that begin with a system prompt; the others have a prompt
            of the same length that nothing shares.
    """

    groups: int
    prefix_tokens: int
    own: Lengths
    output: Lengths
    share: float = 1.0

    def __post_init__(self) -> None:
        if self.groups < 1 or self.prefix_tokens < 1 or not 0 <= self.share <= 1:
            raise InputError(
                f"shared prefixes: {self.groups} groups of {self.prefix_tokens} tokens "
                f"for a share of {self.share:g}; counts start at 1, shares end at 1"
            )

    @property
    def context_tokens(self) -> int:
        """The longest sequence it can make, in tokens."""
        return self.prefix_tokens + self.own.longest + self.output.longest

    def shapes(
        self,
        count: int,
        *,
        block: int,  # noqa: ARG002 - the seam's signature
        draw: random.Random,
    ) -> tuple[RequestShape, ...]:
        """``count`` requests of a block in the order they are sent."""
        return tuple(self._shape(i, draw) for i in range(count))

    def _shape(self, index: int, draw: random.Random) -> RequestShape:
        shares = draw.random() < self.share
        group = draw.randrange(self.groups) if shares else self.groups + index
        segments = (
            Segment(f"system{group}", self.prefix_tokens),
            Segment(f"own{index}", self.own.draw(draw)),
        )
        return RequestShape(segments, self.output.draw(draw), group)


@dataclass(frozen=True, slots=True)
class Conversations:
    """Turns that repeat all that was said before.

    Turn by turn over all conversations of the block: one's next turn comes after a
    turn of each of the others. Answers in the history are drawn like the rest of
    the prompt, not taken from the engine, so that a prompt is the same in every
    trial; a prefix cache knows a conversation up to its last prompt.

    Attributes:
        turns: Of each conversation; the last ones may stay short of it.
        system_tokens: Tokens that begin every conversation.
        user: What a person adds in a turn, in tokens.
        answer: Tokens to generate in a turn, and in the history of the next.
    """

    turns: int
    system_tokens: int
    user: Lengths
    answer: Lengths

    def __post_init__(self) -> None:
        if self.turns < 1 or self.system_tokens < 0:
            raise InputError(
                f"conversations of {self.turns} turns after {self.system_tokens} "
                "tokens: turns start at 1, tokens at 0"
            )

    @property
    def context_tokens(self) -> int:
        """The longest sequence it can make, in tokens."""
        turn = self.user.longest + self.answer.longest
        return self.system_tokens + self.turns * turn

    def shapes(
        self,
        count: int,
        *,
        block: int,  # noqa: ARG002 - the seam's signature
        draw: random.Random,
    ) -> tuple[RequestShape, ...]:
        """``count`` requests of a block in the order they are sent."""
        talks = -(-count // self.turns)
        system = (Segment("system", self.system_tokens),) if self.system_tokens else ()
        histories: list[tuple[Segment, ...]] = [system] * talks
        shapes = []
        for i in range(count):
            turn, talk = divmod(i, talks)
            asked = Segment(f"talk{talk}.user{turn}", self.user.draw(draw))
            answer = Segment(f"talk{talk}.answer{turn}", self.answer.draw(draw))
            prompt = (*histories[talk], asked)
            histories[talk] = (*prompt, answer)
            shapes.append(RequestShape(prompt, answer.token_count, talk))
        return tuple(shapes)


@dataclass(frozen=True, slots=True)
class HitShare:
    """What an unlimited prefix cache, empty at first, answers.

    Attributes:
        cached_tokens: Prompt tokens it answers.
        prompt_tokens: Prompt tokens asked for.
    """

    cached_tokens: int
    prompt_tokens: int

    @property
    def share(self) -> float:
        """Part of the prompt tokens that is answered from the cache."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


def cached_tokens(
    requests: Iterable[PlannedRequest], *, block_tokens: int = USUAL_BLOCK_TOKENS
) -> tuple[int, ...]:
    """Prompt tokens of each request that an unlimited prefix cache answers.

    Every request finds the whole prompts of those before it in the list. Only full
    blocks are shared, and at least one token is always computed, since the model
    needs a position to continue from. Generated tokens count for nothing: planned
    histories do not repeat them.
    """
    known: set[int] = set()
    cached = []
    for request in requests:
        chain = _chain(request.prompt_token_ids, block_tokens)
        usable = (len(request.prompt_token_ids) - 1) // block_tokens
        cached.append(_leading(chain[:usable], known) * block_tokens)
        known.update(chain)
    return tuple(cached)


def hit_share(
    requests: Sequence[PlannedRequest], *, block_tokens: int = USUAL_BLOCK_TOKENS
) -> HitShare:
    """The share of a whole block; ``cached_tokens`` says what is assumed."""
    cached = cached_tokens(requests, block_tokens=block_tokens)
    return HitShare(sum(cached), sum(len(r.prompt_token_ids) for r in requests))


def hit_share_by_turn(
    requests: Sequence[PlannedRequest], *, block_tokens: int = USUAL_BLOCK_TOKENS
) -> tuple[HitShare, ...]:
    """One share for the first request of every group, one for the second, and so on."""
    turns: dict[int, int] = {}
    sums: list[HitShare] = []
    cached = cached_tokens(requests, block_tokens=block_tokens)
    for request, hits in zip(requests, cached, strict=True):
        turn = turns[request.group] = turns.get(request.group, -1) + 1
        if turn == len(sums):
            sums.append(HitShare(0, 0))
        so_far = sums[turn]
        sums[turn] = HitShare(
            so_far.cached_tokens + hits,
            so_far.prompt_tokens + len(request.prompt_token_ids),
        )
    return tuple(sums)


def _chain(tokens: tuple[int, ...], block_tokens: int) -> list[int]:
    """A name for each full block that depends on all tokens before it too."""
    name, names = 0, []
    for end in range(block_tokens, len(tokens) + 1, block_tokens):
        name = hash((name, tokens[end - block_tokens : end]))
        names.append(name)
    return names


def _leading(names: Iterable[int], known: set[int]) -> int:
    count = 0
    for name in names:
        if name not in known:
            break
        count += 1
    return count

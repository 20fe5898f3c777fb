"""The workloads that ship with the package, by name."""

from __future__ import annotations

from autotune.domain.workload import ClosedLoop, LoadShare, Workload


# Busiest first: a level that saturates ends the trial before time is spent on others.
HALF_AND_MOST = (LoadShare(0.85), LoadShare(0.50))


WORKLOADS = {
    # Small enough for a laptop's processor; eight requests share each step.
    "smoke": Workload(
        "smoke",
        prompt_tokens=32,
        output_tokens=16,
        requests=8,
        blocks=3,
        levels=(ClosedLoop(8),),
    ),
    # Short questions, short answers: customer service.
    "chat": Workload(
        "chat",
        prompt_tokens=512,
        output_tokens=128,
        requests=512,
        blocks=2,
        levels=HALF_AND_MOST,
        block_s=15.0,
        most_blocks=4,
    ),
    # Long-form writing.
    "content": Workload(
        "content",
        prompt_tokens=1024,
        output_tokens=512,
        requests=256,
        blocks=1,
        levels=HALF_AND_MOST,
        block_s=10.0,
        most_blocks=3,
    ),
    # Completion over much context.
    "code": Workload(
        "code",
        prompt_tokens=2048,
        output_tokens=256,
        requests=256,
        blocks=1,
        levels=HALF_AND_MOST,
        block_s=10.0,
        most_blocks=3,
    ),
}

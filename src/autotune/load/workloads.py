"""The workloads that ship with the package, by name."""

from __future__ import annotations

from autotune.domain.workload import ClosedLoop, Workload


WORKLOADS = {
    # Small enough for a laptop's processor; eight requests share each step.
    "smoke": Workload(
        "smoke",
        prompt_tokens=64,
        output_tokens=16,
        requests=16,
        blocks=2,
        levels=(ClosedLoop(8),),
    ),
    # Short questions, short answers: customer service.
    "chat": Workload(
        "chat",
        prompt_tokens=512,
        output_tokens=128,
        requests=256,
        blocks=3,
        levels=(ClosedLoop(32),),
    ),
    # Long-form writing.
    "content": Workload(
        "content",
        prompt_tokens=1024,
        output_tokens=512,
        requests=128,
        blocks=3,
        levels=(ClosedLoop(32),),
    ),
    # Completion over much context.
    "code": Workload(
        "code",
        prompt_tokens=2048,
        output_tokens=256,
        requests=128,
        blocks=3,
        levels=(ClosedLoop(32),),
    ),
}

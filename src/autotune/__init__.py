"""Tune vLLM serving settings with measured, repeated, exportable results."""

from importlib.metadata import version


__version__ = version("vllm-autotune")

"""Tune vLLM serving settings with measured, repeated, exportable results."""

__version__ = "0.1.0"

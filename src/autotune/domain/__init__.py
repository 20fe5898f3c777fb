"""Frozen values every room speaks in; standard library only."""

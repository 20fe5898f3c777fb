"""Timings in, opinions out; everything here can be recomputed from stored facts."""

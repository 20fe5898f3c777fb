"""A finished trial in, text files out."""

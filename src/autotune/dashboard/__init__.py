"""A study's file in, pages to look at it out; the only room with optuna-dashboard."""

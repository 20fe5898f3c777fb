"""Facts in, facts out: the database's own tables, beside Optuna's in one file."""

"""Launch lines people run, read as settings; nothing is started."""

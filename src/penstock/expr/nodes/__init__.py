"""The nodes of the expression language, one file per family."""

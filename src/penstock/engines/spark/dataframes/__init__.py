"""Windows inside existing PySpark programs."""

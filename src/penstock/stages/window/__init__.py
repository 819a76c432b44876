"""Window operators: admission, stores, accumulators, results."""

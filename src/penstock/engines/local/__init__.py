"""The in-process engine: co-routines on a pool of threads, bounded channels, schedulers as plug-ins."""

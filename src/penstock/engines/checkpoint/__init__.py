"""Checkpoints: manifests, state files, the journal of sources."""

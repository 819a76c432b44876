"""What people write: PipeGraph, MultiPipe and its verbs."""

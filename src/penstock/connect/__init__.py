"""Readers and writers: the only rooms that touch files, sockets and the user's own data structures."""

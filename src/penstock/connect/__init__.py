"""Readers and writers: the only code that touches the files, sockets and data structures of users."""

"""Changing the number of replicas while rows flow."""

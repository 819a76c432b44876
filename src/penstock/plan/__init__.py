"""The checked plan, its accounts, its text and its picture."""

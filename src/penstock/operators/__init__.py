"""The operators: frozen descriptions of what each step does, with the rule that types its outputs."""

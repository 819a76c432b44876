"""The engines: reference (the judge), local and spark behind one protocol, and what they share."""

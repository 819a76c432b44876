"""What runs as Spark expressions in the JVM."""

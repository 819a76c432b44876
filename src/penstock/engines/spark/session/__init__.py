"""The Spark session, its Java and its worker processes."""

"""What is chosen for a window step before it runs: pure rules that plans explain and stages follow."""

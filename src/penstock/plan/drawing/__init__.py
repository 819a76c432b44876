"""Pictures of a plan: Mermaid and SVG."""

"""Configuration: a frozen tree with defaults and caps, and the one place that reads it."""

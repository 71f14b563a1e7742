"""SPEND: what a run, and all runs of a principal's day together, may still use."""

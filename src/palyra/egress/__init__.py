"""EGRESS: which hosts may be reached, and how that is enforced."""

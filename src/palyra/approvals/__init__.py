"""APPROVE: what a person's yes covers, who may say it, and for how long."""

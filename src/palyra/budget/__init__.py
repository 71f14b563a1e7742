"""SPEND: how many calls and attempts a run still has."""

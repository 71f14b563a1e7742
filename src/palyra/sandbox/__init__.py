"""PLAN: which backend can enforce what a job needs, and the exact plan it compiles the job to."""

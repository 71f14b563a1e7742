"""SKILLS: what a skill is, who may sign it, what is found in it, and how it lives."""

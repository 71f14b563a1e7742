"""The walk of one call through the rooms, and what it needs of the world."""

"""Skills in the database: standings, payloads, reports and pinned keys. Every change commits with its journal entry."""

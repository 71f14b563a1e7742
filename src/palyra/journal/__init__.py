"""The journal: entries, their tree, signed heads, and the audit of it all."""

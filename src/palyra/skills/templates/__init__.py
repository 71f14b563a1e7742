"""Projects that `palyra skills new` begins with, as files of their own languages."""

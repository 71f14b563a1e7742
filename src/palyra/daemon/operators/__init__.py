"""What an operator may ask over HTTP, one file a noun; the functions behind it are wiring's."""

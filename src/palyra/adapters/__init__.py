"""One file a framework: its own interface, with every command and file a call of Palyra's."""

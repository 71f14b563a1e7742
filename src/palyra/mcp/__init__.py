"""The MCP door, over stdio and HTTP: messages are pure, the servers are thin."""

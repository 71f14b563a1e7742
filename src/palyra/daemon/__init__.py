"""The HTTP door: routes, one file a noun; who may use them; what every request goes through."""

"""The operator's pages: rendered here, working without scripts, doing nothing the API cannot."""

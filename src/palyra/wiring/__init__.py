"""The fuse box: the one place that joins hands to the engine's ports."""

"""Programs of ours that run within the sandbox: standard library only, started by path with -I -S."""

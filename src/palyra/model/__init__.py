"""The words every room speaks: frozen values that check themselves when they are made. Nothing here does I/O."""

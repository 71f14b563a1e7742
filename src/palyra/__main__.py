"""`python -m palyra`: the command line."""

from palyra.cli.main import main

if __name__ == "__main__":
    main()

"""`python -m longhmm` is the command line."""

from longhmm.cli import main

if __name__ == "__main__":
    main()

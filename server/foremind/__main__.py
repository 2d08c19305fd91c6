"""`python -m foremind` and the `foremind` command."""

from foremind.cli import main

if __name__ == "__main__":
    main()

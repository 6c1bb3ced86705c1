"""Let ``python -m cotenant`` be the console script."""

from cotenant.cli.app import main

if __name__ == "__main__":
    main()

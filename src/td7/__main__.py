"""`python -m td7` is `td7`."""

from td7.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())

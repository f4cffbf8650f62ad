"""`python -m bench`, from the checkout."""

import sys

from bench.command import main

if __name__ == "__main__":
    sys.exit(main())

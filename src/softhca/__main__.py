"""`python -m softhca`: the command line."""

import sys

from softhca.tools.main import main

if __name__ == "__main__":
    sys.exit(main())

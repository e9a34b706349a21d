"""`python -m ppa_core`."""

import sys

from ppa_core.cli import main

if __name__ == "__main__":
    sys.exit(main())

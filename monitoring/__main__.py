"""`python -m monitoring`."""

import sys

from monitoring.main import main

if __name__ == "__main__":
    sys.exit(main())

"""``python -m reshard_lab`` is the command line."""

import sys

from reshard_lab.cli import main

sys.exit(main())

"""``python -m reshard_lab`` is the command line."""

from __future__ import annotations

import sys

from reshard_lab.cli import main

sys.exit(main())

"""For all tests: Ctrl-C is heard, by what they start as well, even if they themselves run in the background of a script."""

from __future__ import annotations

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

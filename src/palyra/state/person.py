"""Whose process this is: `user:NAME`, the principal that acts of a home's owner are journaled under.

Rule: it is asked of the system, not of LOGNAME, which whoever starts a process chooses.

Not here: the login that a call's own principal is named after (cli/options).
"""

from __future__ import annotations

import getpass
import os
import re


def owner_principal() -> str:
    """`user:NAME` of who this process really is, whatever LOGNAME says: who can open a home is its operator."""
    try:
        from pwd import getpwuid

        name = getpwuid(os.geteuid()).pw_name
    except ImportError:  # no such table here
        name = _login()
    except KeyError:
        name = f"uid-{os.geteuid()}"
    return "user:" + (re.sub(r"[^A-Za-z0-9._@-]", "_", name).lstrip("._@-")[:128] or "unknown")


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"

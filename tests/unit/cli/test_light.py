"""A command imports no more of a library than it needs, and nothing is missing for whoever asks."""

from __future__ import annotations

import subprocess
import sys

ASK = """
import sys
from palyra.cli.light import keep_light
keep_light()
keep_light()
import palyra.policy.cedar
print("light" if not hasattr(sys.modules["cedarpy.pst"], "__file__") else "heavy")
import cedarpy
print(type(cedarpy.policies_to_pst('permit(principal, action, resource);')).__name__)
print(cedarpy.pst.PolicySet.__name__, sys.modules["cedarpy.pst"].__file__.endswith("pst.py"))
"""


def test_syntax_trees_come_when_somebody_asks_for_them():
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["light", "PolicySet", "PolicySet True", ""]

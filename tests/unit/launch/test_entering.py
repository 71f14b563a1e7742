"""What a launcher says of the sandbox it makes is believed only when it was said to its end."""

from __future__ import annotations

import asyncio
import os

import pytest

from palyra.launch.entering import _learn_init
from palyra.launch.executor import LaunchFailed
from palyra.launch.held import Held


@pytest.mark.parametrize("said", [b"", b"{", b'{\n    "child-pid": 28829', b'{\n    "child-pid": 28829,\n  "net'])
def test_a_launcher_killed_before_the_end_of_its_first_word_is_a_failed_launch(said: bytes) -> None:
    held = Held()
    held.info, write = os.pipe()
    os.write(write, said)
    os.close(write)
    try:
        with pytest.raises(LaunchFailed, match="ended before it was ready"):
            asyncio.run(_learn_init(held, is_alone=False))
    finally:
        os.close(held.info)

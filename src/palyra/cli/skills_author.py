"""What the commands that make skills share: the bench they work at, and how their errors are said."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from palyra.cli import interrupts
from palyra.cli.options import Settings
from palyra.cli.say import say_error, say_json_error

if TYPE_CHECKING:
    from palyra.config.load import Home
    from palyra.wiring.skill_bench import Bench

NOT_SO = 1
"""What was asked does not hold: the project does not build, a recorded input does not come out."""


def at_the_bench(settings: Settings, work: Callable[[Bench, Home], Awaitable[int]]) -> int:
    """Do one thing where sandboxes and guests can be started; the number is the exit code."""
    from palyra.config.load import find_home, load_config
    from palyra.wiring.skill_bench import open_bench

    home = find_home(settings.home)
    config, _ = load_config(home, settings.config)

    async def whole() -> int:
        async with open_bench(home, config, path=program_path()) as bench:
            return await work(bench, home)

    return explained(settings, lambda: interrupts.run(whole()))


def explained(settings: Settings, work: Callable[[], int]) -> int:
    """A project, a package or a sandbox that is refused: a sentence and a hint, exit 1."""
    from palyra.errors import Rejected, StateError
    from palyra.skills.findings import SkillRefused
    from palyra.skills.project import ProjectError

    try:
        return work()
    except ProjectError as error:
        code, detail, hint = "", error.detail, error.hint
    except SkillRefused as error:
        code, detail, hint = error.finding.value, error.detail, error.hint
    except (Rejected, StateError) as error:
        code = error.reason.value if isinstance(error, Rejected) else ""
        detail, hint = error.detail, error.hint
    if settings.json:
        say_json_error(code or "PROJECT", detail, hint)
    first, _, rest = detail.partition("\n")
    say_error(f"{code}: {first}" if code else first, hint)
    if rest and not settings.json:
        from palyra.cli.say import say

        say(rest, err=True)
    return NOT_SO


def program_path() -> tuple[str, ...]:
    return tuple(os.environ.get("PATH", os.defpath).split(os.pathsep))

"""Environment variables that any call may set, and the values each may have.

Each only changes how a program words, colours or orders its output, or which branch of its own code it takes: no
program executes the value. A value is a plain word, because a path or blanks may mean more to some script. A locale is
the C locale or a UTF-8 one: in Big5 and Shift-JIS a backslash is half a letter, so that a program would read another
script than guard/ did. Left out for what scripts do with them: DEBUG (`$DEBUG command`), LANGUAGE (paths).

Not here: variables that are banned for everybody (guard/environ).
"""

from __future__ import annotations

from palyra.late import late

_WORD = late(r"[A-Za-z0-9_.,:=+-]{0,256}")
_LOCALE = late(r"(?:C|POSIX|[A-Za-z_@]{2,32}\.(?:UTF-8|utf-?8)|C\.(?:UTF-8|utf-?8))?")
_ZONE = late(r"(?:[A-Za-z0-9_+-]{1,64}(?:/[A-Za-z0-9_+-]{1,64}){0,3})?")
_WORDS = """CI COLUMNS CLICOLOR_FORCE FORCE_COLOR LINES NO_COLOR NODE_ENV PYTHONDONTWRITEBYTECODE PYTHONHASHSEED
            PYTHONUNBUFFERED RUST_BACKTRACE RUST_LOG"""
_LOCALES = "LANG LC_ALL LC_COLLATE LC_CTYPE LC_MESSAGES LC_MONETARY LC_NUMERIC LC_TIME"
HARMLESS = {
    **dict.fromkeys(_WORDS.split(), _WORD),
    **dict.fromkeys(_LOCALES.split(), _LOCALE),
    "TZ": _ZONE,
}

"""The child's environment, rebuilt from nothing: fixed keys, then the caller's by an allowlist, then the operator's.

Rules: nothing is inherited. A key that makes a program load or run something, redirects its network, or changes how
arguments are read is banned for everyone, flags of the operator included: it would undo what guard and policy have
judged. PATH and HOME are the plan's own. A refused key is `BAD_ARGUMENTS`, never dropped in silence.

Not here: proxy variables of an egress listener (the plan adds them itself), secrets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from palyra.errors import Reason, Rejected
from palyra.late import late
from palyra.model.environment import HARMLESS

KEY = late(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
MAX_VALUE_BYTES = 4096

FIXED = frozenset({"PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "PWD", "OLDPWD", "SHELL", "SHLVL"})
"""Set by the plan, or by the program itself; nobody else sets them."""

BANNED = tuple(
    """
    LD_* DYLD_* _RLD* LIBPATH SHLIB_PATH GCONV_PATH GETCONF_DIR LOCPATH NLSPATH GLIBC_TUNABLES MALLOC_* HOSTALIASES
    LOCALDOMAIN RES_OPTIONS RESOLV_* LIBC_* NSS_* TZDIR BASH_ENV BASH_FUNC_* BASHOPTS SHELLOPTS BASH_XTRACEFD
    BASH_LOADABLES_PATH ENV IFS PS0 PS1 PS2 PS3 PS4 PROMPT_COMMAND CDPATH GLOBIGNORE ZDOTDIR FPATH HISTFILE INPUTRC
    COMSPEC PATHEXT PSMODULEPATH POSIXLY_CORRECT PYTHONPATH PYTHONSTARTUP PYTHONHOME PYTHONINSPECT PYTHONBREAKPOINT
    PYTHONUSERBASE PYTHONEXECUTABLE PYTHONPLATLIBDIR PYTHONPYCACHEPREFIX PYTHONWARNINGS PYTHONCASEOK PIP_* UV_*
    CONDA_* PYENV_* PYTEST_ADDOPTS PYTEST_PLUGINS NODE_OPTIONS NODE_PATH NODE_REPL_* NODE_EXTRA_CA_CERTS NPM_* YARN_*
    BUN_* DENO_* ELECTRON_* PERL5OPT PERL5LIB PERL5DB PERLLIB PERL_* RUBYOPT RUBYLIB RUBYPATH GEM_* BUNDLE_* IRBRC
    RAKEOPT LUA_INIT* LUA_PATH* LUA_CPATH* PHPRC PHP_INI_SCAN_DIR R_PROFILE* R_ENVIRON* R_LIBS* R_HOME JULIA_*
    TCLLIBPATH TCL_LIBRARY GUILE_* ERL_* ELIXIR_* AWKPATH AWKLIBPATH M4PATH GHCRTS GHC_* OCAMLPATH OCAMLRUNPARAM
    CAML_LD_* JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS JAVA_OPTS CLASSPATH MAVEN_* GRADLE_* ANT_* SBT_*
    KOTLIN_* DOTNET_* COREHOST_* CORECLR_* COR_* MONO_* COMPLUS_* GIT_* SSH_* SUDO_* RSYNC_* CVS_RSH SVN_* HG*
    GNUPGHOME KRB5* DOCKER_* KUBECONFIG EDITOR VISUAL PAGER MANPAGER MANOPT BROWSER LESS* MORE VIMINIT GVIMINIT EXINIT
    VIM VIMRUNTIME MYVIMRC EMACSLOADPATH TERMINFO TERMINFO_DIRS TERMCAP TERMPATH TAR_OPTIONS TAPE GREP_OPTIONS GZIP BZIP
    BZIP2 XZ_OPT XZ_DEFAULTS ZSTD_* ZIPOPT ZIP UNZIP UNZIPOPT RIPGREP_CONFIG_PATH FZF_* BAT_* FD_* MAKEFLAGS MFLAGS
    GNUMAKEFLAGS MAKEFILES CMAKE_* CTEST_* NINJA_* CARGO_* RUSTC* RUSTFLAGS RUSTDOC* GOFLAGS GOROOT GOPATH GOENV
    GOPROXY GOBIN GOTOOL* CGO_* GCC_* COMPILER_PATH LIBRARY_PATH CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH
    OBJC_INCLUDE_PATH DEPENDENCIES_OUTPUT PKG_CONFIG* CCACHE_* DISTCC_* ACLOCAL* AUTOM4TE* *_PROXY SSL_CERT_*
    SSLKEYLOGFILE CURL_* REQUESTS_CA_BUNDLE WGETRC SYSTEM_WGETRC NETRC OPENSSL_* GNUTLS_* XDG_CONFIG_* XDG_DATA_*
    XDG_RUNTIME_DIR DBUS_* SYSTEMD_* XAUTHORITY GTK_* QT_* GIO_* GST_* GDK_* VK_* LIBGL_* MESA_* FAKEROOT* FAKECHROOT*
    CUDA_INJECTION* OCL_ICD_* PALYRA_*
    """.split()
)
"""Upper case; `*` stands for any rest. Compared case-insensitively: curl reads only `http_proxy`."""

SIGNATURES = frozenset(f"GIT_{who}_{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL", "DATE"))
"""Of all GIT_* these only say whose a commit is and when: without them nobody can commit, for in a sandbox there is no
~/.gitconfig. Still set by the operator, or by a call where settable_env names them."""

_BANNED_WORDS = frozenset(word for word in BANNED if "*" not in word)
_BANNED_STARTS = tuple(word[:-1] for word in BANNED if word.endswith("*"))
_BANNED_SHAPES = tuple(word for word in BANNED if word.startswith("*"))


def is_banned(key: str) -> bool:
    name = key.upper()
    if key in SIGNATURES:
        return False
    if name in _BANNED_WORDS or name.startswith(_BANNED_STARTS):
        return True
    return any(fnmatchcase(name, shape) for shape in _BANNED_SHAPES)


def build_environment(
    *,
    search_path: Sequence[str],
    home: str,
    user: str = "agent",
    lang: str = "C.UTF-8",
    term: str = "dumb",
    tmpdir: str = "/tmp",  # noqa: S108  # inside the sandbox: private to the call
    caller: Mapping[str, str],
    settable: Sequence[str],
    operator: Iterable[tuple[str, str]] = (),
    also: Iterable[tuple[str, str]] = (),
) -> tuple[tuple[str, str], ...]:
    """The whole environment of the child, sorted by key. The operator's pairs win over the caller's.

    `also`: pairs of Palyra's own (gitenv), with keys that nobody else can set.
    """
    values = {
        "PATH": ":".join(search_path),
        "HOME": home,
        "USER": user,
        "LOGNAME": user,
        "LANG": lang,
        "LC_ALL": lang,
        "TERM": term,
        "TMPDIR": tmpdir,
    }
    allowed = frozenset(settable)
    for key, value in caller.items():
        _check_pair(key, value)
        if key not in allowed:
            raise Rejected(
                Reason.BAD_ARGUMENTS,
                f"The environment key {key} may not be set by a call.",
                f'A shell can set it, where policy allows one: command="bash", args=["-c", "export {key}=VALUE; …"]. '
                "An operator can add it to settable_env in [tool_call.process_runner].",
                fields=((f"env.{key}", "not settable"),),
            )
        if key in HARMLESS and not HARMLESS[key].fullmatch(value):
            raise Rejected(
                Reason.BAD_ARGUMENTS,
                f"The environment key {key} may only have a plain word as its value when a call sets it.",
                "Give a word, a time zone such as Europe/Berlin, or a locale such as C or en_US.UTF-8. "
                "An operator can set any value for this call: palyra run --env.",
                fields=((f"env.{key}", "no plain word"),),
            )
        values[key] = value
    for key, value in operator:
        _check_pair(key, value)
        values[key] = value
    return tuple(sorted((values | dict(also)).items()))


def _check_pair(key: str, value: str) -> None:
    if not KEY.fullmatch(key):
        raise Rejected(
            Reason.BAD_ARGUMENTS,
            f"{key[:60]!r} is not an environment key.",
            "A key is letters, digits and _, not beginning with a digit. See settable_env.",
        )
    if is_banned(key):
        raise Rejected(
            Reason.BAD_ARGUMENTS,
            f"The environment key {key} can make a program run or load something and is never set.",
            "Leave it out; neither settable_env nor --env can allow it.",
            fields=((f"env.{key}", "never settable"),),
        )
    if key in FIXED:
        raise Rejected(
            Reason.BAD_ARGUMENTS,
            f"The environment key {key} belongs to the sandbox.",
            "Leave it out. Where programs are found is `path` in [tool_call.process_runner], not settable_env.",
            fields=((f"env.{key}", "fixed"),),
        )
    if "\0" in value or len(value.encode("utf-8", "surrogatepass")) > MAX_VALUE_BYTES:
        raise Rejected(
            Reason.BAD_ARGUMENTS,
            f"The value of environment key {key} holds a NUL or more than {MAX_VALUE_BYTES} bytes.",
            "Put long values into a file in the workspace.",
        )

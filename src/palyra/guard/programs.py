"""What is known of programs by name: which are interpreters, which run code that their arguments or folder name.

Tables, read by guard/command and guard/wrappers, and `normalise`, which brings a name into the form they hold: no
folder, lower case, no `.exe`, no version. A program on none of these tables counts as plain: it must still be on the
executable allowlist to run at all, and the sandbox holds it like any other.

Not here: options and their meaning (guard/wrappers, guard/escapes, guard/gitline, guard/sedscript).
"""

from __future__ import annotations

from functools import lru_cache

from palyra.late import late


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SHELLS = _names(
    "sh bash dash ash hush zsh fish ksh mksh pdksh lksh oksh yash posh rbash rksh rzsh csh tcsh elvish nu nushell "
    "xonsh osh ysh ion murex ngs scsh sash execlineb busybox toybox cmd command powershell pwsh wscript cscript mshta"
)
AWKS = _names("awk gawk mawk nawk igawk original-awk goawk bwk")
LANGUAGES = _names(
    """
    python pythonw pypy ipython bpython ptpython micropython circuitpython jython graalpy py pyw
    node nodejs deno bun iojs qjs quickjs d8 js js-shell gjs cjs rhino phantomjs electron ts-node tsx
    ruby irb jruby mruby truffleruby perl raku rakudo php php-cgi php-fpm phpdbg hhvm
    lua luajit luau texlua texluajit tclsh wish tcl expect expectk jimsh
    r rscript littler julia octave octave-cli matlab scilab gnuplot maxima sage
    java javaw jshell jrunscript jjs groovy groovysh scala kotlin clojure clj bb lein
    ghci runghc runhaskell ocaml ocamlrun utop erl escript elixir iex
    guile racket gracket scheme mit-scheme chez petite gsi csi sbcl clisp ecl ccl abcl emacs emacsclient
    swipl gprolog yap gforth forth dotnet mono fsi fsharpi csharp osascript m4 mlr dc
    wasmtime wasmer wasm3 iwasm
    """
)
INTERPRETERS = SHELLS | AWKS | LANGUAGES
"""Whatever they are given, they are made to run code."""

LOADERS = ("ld-linux", "ld-musl", "ld.so", "ld64.so", "ld-uclibc")
"""Starts of the dynamic loader's names: `ld-linux-x86-64.so.2 /bin/sh` is /bin/sh."""

BUILD_TOOLS = _names(
    """
    make gmake bmake pmake remake cmake ctest cpack ninja samu meson scons waf bazel bazelisk buck buck2 pants please
    gradle gradlew mvn mvnw ant sbt mill rake thor bundle bundler gem cargo rustc rustup go gofmt zig swift xcodebuild
    npm npx yarn yarnpkg pnpm pnpx corepack nx turbo lerna gulp grunt webpack vite rollup esbuild jest vitest mocha tsc
    pip pipx pipenv poetry uv uvx pdm hatch flit conda mamba micromamba pyenv tox nox pytest py.test unittest
    virtualenv venv twine mypy pylint pre-commit invoke fab ansible ansible-playbook salt
    composer phpunit artisan mix rebar3 stack cabal ghc dune opam nimble nim crystal shards dub
    gcc g++ cc c++ cpp clang clang++ tcc icc ld gold lld as collect2 gfortran gnat nasm cython f2py javac kotlinc scalac
    autoconf automake autoreconf aclocal libtool libtoolize configure just task mage earthly msbuild nmake
    asdf mise direnv nvm rbenv sdk eslint prettier
    ccache sccache distcc icecc c89 c99 ld.bfd ld.gold ld.lld mold swiftc dmd ldc2 gdc fpc qmake qmake6 xmake tup dart
    flutter rspec cucumber rails bats golangci-lint dlv goreleaser luarocks cpan cpanm prove wasm-pack scala-cli
    """
)
"""They run what the project's own files say, and the project is what the agent writes."""

RUNNERS = _names(
    """
    vi vim view vimdiff gvim evim rvim nvim neovim ex ed red nano pico rnano micro joe jed mcedit kak helix hx mg ne
    less more most pg man info pinfo screen tmux dtach abduco byobu zellij mc ranger nnn ncdu vifm tig lazygit fzf
    gdb lldb rr perf valgrind ltrace strace dtruss bpftrace uftrace catchsegv ldd ldconfig faketime cpulimit
    pidproxy dumb-init tini gosu su-exec catatonit chpst softlimit setuidgid envdir
    unshare nsenter chroot setpriv capsh runuser su pkexec newgrp sg machinectl systemd-run systemd-nspawn bwrap
    firejail proot fakechroot fakeroot flatpak snap nix nix-shell guix docker podman nerdctl buildah kubectl oc lxc
    lxc-attach runc crun ctr helm vagrant qemu qemu-x86_64 qemu-aarch64 wine wine64 box64
    parallel rush watch watchexec entr reflex nodemon hyperfine script scriptreplay unbuffer rlwrap ttyrec asciinema
    at batch crontab anacron run-parts start-stop-daemon daemonize supervisord pm2 forever logrotate incrontab
    xvfb-run dbus-run-session dbus-launch startx xinit sshpass autossh mosh rsh remsh rexec ssh-agent sslh
    sqlite sqlite3 duckdb psql mysql mariadb mongo mongosh ftp lftp socat nmap tshark wireshark msfconsole
    tex latex pdftex pdflatex luatex lualatex xetex xelatex latexmk context gs ghostscript ps2pdf dvips
    magick convert identify mogrify montage exiftool pandoc gimp blender inkscape soffice libreoffice
    hg svn svnadmin bzr cvs p4 fossil darcs jj git-shell git-remote-ext repo
    apt apt-get aptitude dpkg dpkg-buildpackage rpm rpmbuild yum dnf zypper pacman makepkg apk brew port snapcraft
    telnet rlogin mail mailx mutt lynx w3m links elinks cu tip minicom kermit smbclient ncftp cscope bison groff troff
    logsave runcon numactl schedtool cgexec aa-exec nsjail minijail0 systemd-inhibit systemd-cat
    systemd-socket-activate proxychains proxychains4 torsocks pee mispipe vipe vidir visudo sudoedit vipw vigr login
    agetty getty xdg-open gio tcpserver gh glab terraform tofu packer pulumi hugo buf act lefthook rclone restic
    claude codex gemini aider goose opencode
    gpg-agent gpg-connect-agent gpgconf sox play rec msgfilter msgexec multitime eatmydata trickle setlock pexec openvt
    run0 sudo-rs nq tsp distrobox toolbox lxd incus buildctl crictl tmate rview qemu-system-x86_64 qemu-system-aarch64
    mount umount modprobe insmod kexec init systemctl service telinit ip tc ebtables iptables nft ctags
    fstab-decode slattach readprofile mke2fs e2fsck tput tset reset not lli lli-child-target llc opt bugpoint dsymutil
    sanstats lto-dump gcc-ar gcc-nm gcc-ranlib gprofng gp-archive gp-collect-app gp-display-text dlltool windres luit
    sprof memusage coresched enosys pipesz setpgid scriptlive sulogin switch_root pivot_root systemd conmon kpt
    dirmngr gpgtar gpg-wks-client gpg-wks-server gpgcompose gp-display-src gp-display-html jar jarsigner javadoc javap
    jcmd jconsole jdb jdeprscan jdeps jexec jfr jhsdb jimage jinfo jlink jmap jmod jpackage jps jstack jstat jstatd
    jwebserver keytool rmid rmiregistry serialver mkfs fsck debugfs catman rpcgen pkgdata etags ctags-universal
    ctags-exuberant optscript global gtags vgdb pic gpic msgfmt msgunfmt msginit scalar dbus-daemon gio-querymodules
    osslsigncode pkcs11-tool p11tool p11-kit initdb pg_ctl postgres mysqld mysqld_safe mariadbd redis-server
    redis-sentinel memcached timelimit datefudge nocache stress-ng lckdo zrun retry daemon runsv runsvdir sv fghack
    pgrphack argv0 envuidgid supervise multilog schroot debootstrap reptyr torify tsocks usewithtor redsocks wrk k6
    gapplication sshd inetd xinetd cron crond atd stunnel stunnel4 nginx apache2 httpd lighttpd uwsgi gunicorn caddy
    haproxy dnsmasq dhclient udhcpc openvpn pppd hostapd wpa_supplicant sendmail exim exim4 procmail maildrop
    fetchmail msmtp ffmpeg ffplay ffprobe mpv vlc cvlc mplayer csound lilypond povray mutool asy mpost mf initex
    virtex etex pdfetex dvipdfm dvipdfmx xdvipdfmx xdvi kpsewhich r2 radare2 rabin2 xorg xvfb xephyr xnest sway weston
    """
)
"""They run other programs: through an escape to a shell, a script of their own, hooks, an editor or a library."""

_FAMILY = late(
    r"(?:llvm|clang|git|systemd|gst|gtk|gdk|mariadbd?|mysql|qemu|lxc|lxd|apt|runit|s6|proxychains|docker|podman|kubectl"
    r"|iptables|ip6tables|arptables|ebtables|xtables)[-_].*|ip6tables|arptables|mysql\w*|mkfs[.].*|fsck[.].*"
)
"""Families with dozens of members, most of which load plugins, run hooks or start each other: one that is new, too."""
_READING = _names(
    """
    llvm-nm llvm-objdump llvm-readelf llvm-readobj llvm-size llvm-strings llvm-cxxfilt llvm-undname llvm-dwarfdump
    llvm-dis llvm-bcanalyzer llvm-ar llvm-ranlib llvm-strip llvm-objcopy llvm-cat llvm-config llvm-profdata
    systemd-detect-virt systemd-escape systemd-id128 systemd-path systemd-cgls systemd-cgtop apt-cache
    """
)
"""Members that only read or rewrite the files they are given."""

REACHES = _names("tar gtar star cpio mt dump restore rdump rrestore xfsdump xfsrestore scp rsync sftp sshfs")
"""They start a remote shell for a name that is elsewhere (guard/remote)."""

BROAD_KILLS = _names("pkill killall killall5 skill snice slay xkill pidkill fuser")
"""They pick processes by name, user or file, so they hit strangers. `fuser` only with -k."""

MULTI_CALL = _names("busybox toybox coreutils gnu-coreutils uutils sbase-box")
"""One file, many programs: the name it is started by says which, not the file it is."""

PLAIN_SCRIPTS = _names("egrep fgrep zcat gunzip uncompress which")
"""Scripts of the system that take no code from their arguments: `egrep` is `grep -E`, whatever its first line says."""

_OTHERS = _names(
    """
    env xargs find bfs fd fdfind flock sed gsed git zip openssl tree timeout nice nohup time stdbuf setsid ionice chrt
    taskset choom chronic ifne prlimit sudo doas setarch uclampset sort split rg bat batcat ag ugrep ug protoc delta
    install diff3 sdiff patch curl wget wget2 aria2c tcpdump ssh slogin ssh-keygen ssh-add nc nc.openbsd
    nc.traditional ncat netcat gpg gpg2 gpgv gpgsm nm ar ranlib strip objdump objcopy bsdtar
    """
)
"""Plain programs and wrappers whose options are read elsewhere (guard/wrappers, guard/escapes)."""
VERSIONED = INTERPRETERS | BUILD_TOOLS | RUNNERS | REACHES | MULTI_CALL | BROAD_KILLS | _OTHERS
"""Names that carry versions, and marks such as `.distrib`: `not-14` is not. Others keep theirs: base64, sha256sum."""

INLINE_LETTERS = {
    **dict.fromkeys(SHELLS, "c"),
    **dict.fromkeys(("python", "pythonw", "pypy", "ipython", "micropython", "jython", "graalpy", "py"), "c"),
    **dict.fromkeys(("perl", "ruby", "jruby", "mruby", "truffleruby", "julia", "raku"), "eE"),
    **dict.fromkeys(("node", "nodejs", "bun", "iojs", "qjs"), "ep"),
    **dict.fromkeys(("lua", "luajit", "luau", "rscript", "r", "littler", "osascript", "groovy", "scala"), "e"),
    **dict.fromkeys(("php", "php-cgi", "phpdbg"), "rBRE"),
    "swipl": "ceg",
}
INLINE_WORDS = _names(
    "--eval --print --exec --execute --command --run --expression --batch -command -encodedcommand -enc -ec -eval "
    "/c /k /r eval"
)
"""How code is handed over on the command line itself, per family and for all."""

_GNU = {
    f"g{name}": name
    for name in "chroot cpio diff3 env find install nice nohup patch sdiff sort split stdbuf time timeout xargs".split()
}
"""How GNU's programs are called where the system has others of that name: `gfind -exec` is find's."""
_VERSION = late(r"[-._]?v?\d+(?:[.]\d+)*(?:[a-z]{0,2}|[-._].*)")
_MARK = late(r"[-._](?:distrib|real|orig|bin|old|static|wrapped|unwrapped|dpkg-\w+|nox|x11|lucid|gtk\d?|tiny|basic)")
"""What packagers put behind the name of the very same program."""
_TARGET = late(
    r"(?:[a-z0-9_.]+-){1,4}(?=(?:gcc|g\+\+|c\+\+|clang|clang\+\+|gfortran)(?:-\d[\d.]*)?$)"
    r"|(?:[a-z0-9_.]+-){2,4}(?=(?:cpp|ld|as|nm|ar|ranlib|strip|objdump|objcopy|gcc-(?:ar|nm|ranlib)|lto-dump|dlltool"
    r"|windres|gprofng|gp-[\w-]+|pkg-config|run|python[\d.]*)(?:-\d[\d.]*|[.]\w+)?$)"
)
"""For which machine a compiler makes its code: `x86_64-linux-gnu-gcc-12`."""
_LONGEST = max(map(len, VERSIONED))
"""Of a name with a version behind it; an argument of 4 KB must not be cut in four thousand ways."""
_LONGEST_TARGET = 64
_SUFFIXES = (".exe", ".cmd", ".bat", ".com")
MAX_NAME = 256


def normalise(name: str) -> str:
    """The name the tables know a program by: `/usr/bin/Python3.12.exe` → `python`."""
    return _remembered(name) if len(name) <= _MAX_REMEMBERED else _normalise(name)


def _normalise(name: str) -> str:
    base = name.replace("\\", "/").rpartition("/")[2].lower()
    for suffix in _SUFFIXES:
        if base.endswith(suffix) and len(base) > len(suffix):
            base = base[: -len(suffix)]
    if "-" in base and len(base) <= _LONGEST_TARGET:
        base = _TARGET.sub("", base, count=1)
    if base.startswith("vim."):  # vim.basic, vim.tiny: what the system's alternatives point to
        return "vim"
    base = _GNU.get(base, base)
    if base not in VERSIONED and not base.startswith(LOADERS):
        base = _without_version(base)
    return "".join(letter if letter.isprintable() else "?" for letter in base[:MAX_NAME])


def _without_version(base: str) -> str:
    for length in range(min(len(base) - 1, _LONGEST), 1, -1):
        known, rest = base[:length], base[length:]
        if known in VERSIONED and (_VERSION.fullmatch(rest) or _MARK.fullmatch(rest)):
            return known
    return _VERSION_BEHIND.sub("", base) if _FAMILY.fullmatch(base) else base


_VERSION_BEHIND = late(r"[-._]?\d[\d.]*$")
_MAX_REMEMBERED = 128
"""One command line asks for the same few names two dozen times; a long one is an argument, and hardly comes again."""
_remembered = lru_cache(maxsize=2048)(_normalise)


def is_runner(known: str) -> bool:
    """Of a normalised name."""
    return known in RUNNERS or (known not in _READING and known not in _OTHERS and bool(_FAMILY.fullmatch(known)))


def is_interpreter(name: str) -> bool:
    known = normalise(name)
    return known in INTERPRETERS or known.startswith(LOADERS)

"""Plain programs with an option that runs something: each such option is an attack, each of its neighbours is not."""

from __future__ import annotations

import shlex

import pytest

from palyra.guard.command import Classification, classify
from tests.promises import promise

SHELLED = """
tree -H . -L 1 -R
tree -L 1 -RH .
tree -aR -H x
split --filter=id f
bat --pager=id f
delta --pager=id
rsync --rsync-path=id a h:b
nc -c id h 1
ncat --sh-exec=id h 1
netcat --sh-exec id h 1
nc.openbsd -c id h 1
nc.traditional -c id h 1
sftp -D id h
tar -F id -cf a.tar f
tar cFf id a.tar f
tar --to-command=id -xf a.tar
tar --checkpoint-action=exec=id -cf a.tar f
tar --info-script=id -cf a.tar f
tar --new-volume-script=id -cf a.tar f
tar -I mytool -cf a.tar f
tar -I 'gzip; id' -cf a.tar f
gtar --use-compress-program=mytool -cf a.tar f
bsdtar -I mytool -xf a.tar
star -I mytool -xf a.tar
sort --compress-program=mytool f
zip -TTid a.zip f
zip -T --unzip-command id a.zip f
zip -T --unzip-command=id a.zip f
ssh -o ProxyCommand=id h
ssh -o 'LocalCommand id' h
ssh -oPermitLocalCommand=yes h
ssh -o " 'KnownHostsCommand' id" h
slogin -o PKCS11Provider=x h
scp -o SmartcardDevice=x a h:b
sftp -o SecurityKeyProvider=x h
ssh -o XAuthLocation=x h
ssh -o Include=x h
ssh -o Match=x h
ssh -o ProxyUseFdpass=yes h
"""
CODE = """
sftp h
curl --engine ./e.so https://h
curl --eng e https://h
curl -K c https://h
curl -sSK c https://h
curl --config c https://h
gpg --homedir h --list-keys
gpg --home=h -k
sdiff -o out a b
sdiff --output=out a b
sdiff -so out a b
openssl fipsinstall -module ./e.so
rsync --daemon --config=c
rsync --config c --daemon
aria2c --enable-rpc
bat --diff-so-fancy f
patch -e f
patch --ed f
wget -e use_proxy=on u
wget --execute use_proxy=on u
wget --config=x u
wget2 -e x u
wget2 --plugin=x u
wget2 --execute x u
wget2 --config=x u
aria2c --conf-path=x u
ssh -F x h
ssh -I x h
slogin -F x h
slogin -I x h
scp -F x a h:b
sftp -b x h
sftp -F x h
ssh-keygen -D x
ssh-keygen -w x
ssh-add -s x
ssh-add -S x
ncat --lua-exec=x h 1
gpg --options x f
gpg2 --agent-program x f
gpgv --dirmngr-program x f
gpgsm --photo-viewer x f
gpg --exec-path x f
gpg --keyserver-options x f
gpg --gpg-program x f
nm --plugin x f
ar --plugin x f
ranlib --plugin=x f
strip --plugin=x f
objdump --plugin=x f
objcopy --plugin=x f
tar -I '' -cf a.tar f
protoc --plugin=protoc-gen-x=./x a.proto
tar -cM -f a.tar f
tar cMf a.tar f
tar -L 10 -cf a.tar f
tar --mul -xf a.tar
tar --tape-length=5 -cf a.tar f
patch -g1 f
patch --get=1 f
rg --pre '' x
openssl engine -t x
openssl x -engine y
openssl x --engine_impl y
openssl x -PROVIDER y
openssl x -provider-path y
openssl x -provider_path y
openssl x -config y
openssl x -post y
"""
STARTED = """
rg --pre other x
rg --hostname-bin other x
install --strip-program=other a b
cpio --rsh-command=other -o
sdiff --diff-program=other a b
diff3 --diff-program=other a b c
rsync -e other a b
rsync --rsh=other a b
wget --use-askpass=other u
wget2 --use-askpass=other u
aria2c --on-download-complete=other u
aria2c --on-download-start=other u
aria2c --on-download-stop=other u
aria2c --on-download-error=other u
aria2c --on-download-pause=other u
aria2c --on-bt-download-complete=other u
tcpdump -z other
scp -S other a b
scp -D other a b
nc -e other h 1
netcat -e other h 1
ncat --exec=other h 1
tar --rsh-command=other -cf a f
tar --rmt-command=other -cf a f
"""
HONEST = "gzip gunzip pigz unpigz bzip2 bunzip2 pbzip2 lbzip2 xz unxz pixz lzma lzip plzip lzop lz4 zstd unzstd zstdmt"
PLAIN = """
tree -R
tree -L 2 -H .
tree --dirsfirst -aI R
curl -fsSL -o K https://h
curl -oK https://h
curl -X POST -d @f https://h
curl --connect-timeout 5 https://h
gpg --verify f.sig f
sdiff -s a b
sdiff -w 80 a b
sort -k2 -t, f
split -b 1k f
tar --checkpoint=5 -cf a.tar f
tar --checkpoint-action=dot -cf a.tar f
tar -cf Ix.tar f
tar -cfIx.tar f
tar cf I f
tar tf a.tar
tar --exclude=I -cf a.tar f
ssh -o BatchMode=yes h
ssh -o ServerAliveInterval=5 h
scp a b
patch -p1 -i e.patch
wget -O e u
gpg --decrypt f
openssl dgst -sha256 f
zip -r a.zip f
zip --TTY f
rsync -av a b
"""
VALUES = {
    "patch": ("e", "BDFVYdioprz"),
    "rsync": ("e", "BfMT@"),
    "wget": ("e", "aABDGIilnoOPQRtTUwX"),
    "wget2": ("e", "aABDGIilnoOPQRtTUwX"),
    "tcpdump": ("z", "BcCEFGijmMrQsTVwWyZ"),
    "ssh": ("F", "BbcDEeiJLlmOopQRSWw"),
    "scp": ("F", "ciJloPX"),
    "ssh-keygen": ("D", "abCfIN"),
    "ssh-add": ("s", "Eet"),
    "nc": ("c", "iIpqswWxX"),
    "tar": ("I", "bCfgHKNTVX"),
}


def read(line: str) -> Classification:
    command, *args = shlex.split(line)
    return classify(command, args)


def lines(text: str) -> list[str]:
    return text.strip().splitlines()


@promise("commands.code-options")
@pytest.mark.parametrize("line", lines(SHELLED))
def test_a_text_for_a_shell_is_the_shell(line: str) -> None:
    found = read(line)
    assert (found.effective_program, found.interpreter, found.inline_code) == ("sh", True, True)
    assert found.why


@promise("commands.code-options")
@pytest.mark.parametrize("line", lines(CODE))
def test_what_loads_a_library_or_a_settings_file_is_code(line: str) -> None:
    found = read(line)
    assert (found.effective_program, found.interpreter, found.runs_code) == (found.program, False, True)
    assert found.why


@promise("commands.code-options")
@pytest.mark.parametrize("line", lines(STARTED))
def test_a_program_that_an_option_names_must_be_allowed_like_any_other(line: str) -> None:
    found = read(line)
    assert (found.effective_program, found.also, found.runs_code) == ("other", ("other",), False)
    shell = read(line.replace("other", "bash"))
    assert (shell.effective_program, shell.interpreter) == ("bash", True)


@pytest.mark.parametrize("line", lines(PLAIN))
def test_honest_use_of_the_same_programs_runs_nothing(line: str) -> None:
    found = read(line)
    assert (found.effective_program, found.also, found.runs_code) == (found.program, (), False)


@pytest.mark.parametrize("name", HONEST.split())
def test_a_compressor_may_be_named_and_counts_as_itself(name: str) -> None:
    for line in (f"tar -I {name} -cf a f", f"tar -I '{name} -9' -cf a f", f"sort --compress-program={name} f"):
        found = read(line)
        assert (found.effective_program, found.also, found.runs_code) == (name, (name,), False)


@pytest.mark.parametrize(("program", "letters"), VALUES.items())
def test_what_follows_an_option_with_a_value_in_its_word_is_that_value(program: str, letters: tuple[str, str]) -> None:
    escape, taking = letters
    assert read(f"{program} -{escape}x").effective_program != program or read(f"{program} -{escape}x").runs_code
    assert [letter for letter in taking if read(f"{program} -{letter}{escape}x h").runs_code] == []


def test_an_interpreter_that_a_text_names_is_told_by_name() -> None:
    assert read("gpg --photo-viewer 'python3 -c 1' f").effective_program == "python"
    assert read("split --filter 'perl -e 1' f").effective_program == "perl"


def test_what_is_refused_says_which_option_it_was() -> None:
    assert read("tar -F id -cf a.tar f").why == "tar -F hands a text to a shell"
    assert read("split --fil=id f").why == "split --filter hands a text to a shell"
    assert read("ssh -F x h").why == "ssh -F makes it run or load something"
    assert read("openssl engine x").why == "openssl engine loads a library"
    assert read("zip -TTid a f").why == "zip -TTid tests with a program of its own"
    assert read("scp -o proxycommand=id a h:b").why == "scp -o proxycommand runs a program here"

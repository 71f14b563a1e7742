"""The table of keys that clouds, forges and other services hand out: by prefix, alphabet and length.

Rules: a prefix alone is never enough, a word that merely begins like a key is left alone. Most keys are one long word
(`LONG_KEYS`): output that holds no word of that length is not searched for any of them, which is nearly all output.
One with a slash in it, as base64 has them, is none: it belongs to `KEYS`, else a chunk that ends in it shows it.

Not here: how a shape is judged (patterns); private-key blocks (pem); headers (headers, fields).
"""

from __future__ import annotations

import base64
import re
from typing import Final

from palyra.late import late
from palyra.redact.patterns import JWT_EDGE, Form, Keys, one, run, text

_ALNUM = "[A-Za-z0-9]"
_WORD = "[A-Za-z0-9_]"
_URL64 = "[A-Za-z0-9_-]"
_DOTTED = "[A-Za-z0-9_.-]"
_HEX = "[0-9a-fA-F]"
_GITLAB = "pat dt rt rtr cbt ptt ft imt agent soat oas ffct wt".split()
_SETTING = run(r"""[\\"'\] \t]""", 0, 8) + one("[:=]") + run(r"""[\\"' \t]""", 0, 8)
"""Between the name of a setting and its value: `=`, `: `, `": "`, `\\": \\"`."""

_JWT = text("eyJ") + run(_URL64, 8) + text(".") + run(_URL64, 6) + text(".") + run(_DOTTED, 0)
_OPENAI = tuple(
    Form("openai", text(f"sk-{name}-") + run(_URL64, 20)) for name in ("proj", "svcacct", "admin", "None", "or-v1")
)
_AWS_ID = text("A") + one("[KS]") + text("IA") + run("[A-Z0-9]", 16)
_AWS_SECRET = run("[A-Za-z0-9/+]", 40, 40)

_BEGIN64 = "LS0tLS1CRUdJTi"
_KEY_FILES = ("", "RSA ", "EC ", "DSA ", "OPENSSH ", "ENCRYPTED ", "PGP ")


def _key_file(kind: str) -> Form:
    """A private key's whole file as settings of clusters hold it: `client-key-data: LS0tLS1CRUdJTiBSU0Eg…`."""
    head = f"-----BEGIN {kind}PRIVATE KEY".encode()
    return Form("private-key", text(base64.b64encode(head)[: len(head) * 8 // 6].decode()) + run("[A-Za-z0-9+/=]", 40))


# Families that share a first letter share one search, which costs less than one for each.
KEYS: Final = (
    Keys(["eyJ"], Form("jwt", _JWT), edge=JWT_EDGE, coloured=False),
    Keys(
        ["AKIA", "ASIA", "AIza"],
        Form(
            "aws", _AWS_ID + run(r"""[\s,;:|=\\"']""", 1, 8) + _AWS_SECRET, exact=True
        ),  # a line of a credentials file
        Form("aws", _AWS_ID),
        Form("google", text("AIza") + run(_URL64, 35)),
        search="AKIA|ASIA|AIza",
    ),
    Keys(
        ["ecret_access_key", "ECRET_ACCESS_KEY", "ecretAccessKey"],
        Form("aws", run("[A-Za-z0-9/+]", 40), keep=_SETTING),
        after=True,
        words=(b"secret",),
    ),
    Keys(["AccountKey="], Form("azure", run("[A-Za-z0-9+/=]", 40)), after=True, words=(b"key",)),
    Keys(
        [*(f"xox{letter}" for letter in "abcdeoprs"), "xapp-"],
        Form("slack", text("xox") + one("[abcdeoprs]") + text("-") + run("[A-Za-z0-9-]", 10)),
        Form("slack", text("xoxe.xox") + one("[bp]") + text("-") + run("[A-Za-z0-9-]", 10)),
        Form("slack", text("xapp-") + run("[A-Za-z0-9-]", 10)),
        search="xox[abcdeoprs]|xapp-",
    ),
    Keys(["hooks.slack.com/"], Form("slack", run("[A-Za-z0-9/_-]", 20)), after=True, words=(b"hooks",)),
    Keys(
        ["/api/webhooks/"],
        Form("discord", run("[0-9]", 16) + text("/") + run(_URL64, 60)),
        after=True,
        words=(b"hooks",),
    ),
    Keys(["sntrys_eyJ"], Form("sentry", text("sntrys_eyJ") + run("[A-Za-z0-9_=+/-]", 40))),
    Keys(["ya29."], Form("google", text("ya29.") + run(_URL64, 20))),
    Keys(["_authToken="], Form("npm", run("[A-Za-z0-9_.+/=-]", 8)), after=True, words=(b"token",)),
)

LONG_KEYS: Final = (
    Keys(
        ["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", *(f"gl{name}-" for name in _GITLAB), "glsa_"],
        Form("github", text("gh") + one("[pousr]") + text("_") + run(_WORD, 36)),
        Form("github", text("github_pat_") + run(_WORD, 22)),
        Form("gitlab", text("gl") + run("[a-z]", 2) + text("-") + run(_URL64, 20) + run(_DOTTED, 0)),
        Form("grafana", text("glsa_") + run(_WORD, 32)),
        search=f"g(?:h[pousr]_|ithub_pat_|l(?:sa_|(?:{'|'.join(_GITLAB)})-))",
    ),
    Keys([_BEGIN64], *map(_key_file, _KEY_FILES)),
    Keys(["GOCSPX-"], Form("google", text("GOCSPX-") + run(_URL64, 24))),
    Keys(
        ["sk-"],
        Form("anthropic", text("sk-ant-") + run(_URL64, 20)),
        *_OPENAI,
        Form("openai", text("sk-") + run(_ALNUM, 32)),
    ),
    Keys(["npm_"], Form("npm", text("npm_") + run(_ALNUM, 36))),
    Keys(["pypi-"], Form("pypi", text("pypi-AgE") + run(_URL64, 32))),
    Keys(
        ["sk_live_", "rk_live_", "sk_test_", "rk_test_"],
        Form("stripe", one("[rs]") + text("k_") + run("[a-z]", 4, 4) + text("_") + run(_ALNUM, 16)),
    ),
    Keys(["whsec_"], Form("stripe", text("whsec_") + run(_ALNUM, 24))),
    Keys(["hf_"], Form("huggingface", text("hf_") + run(_ALNUM, 30))),
    Keys(
        ["hvs.", "hvb.", "hvr."],
        Form("vault", text("hv") + one("[sbr]") + text(".") + run(_URL64, 24)),
    ),
    Keys(["dckr_"], Form("docker", text("dckr_") + run("[a-z]", 3, 3) + text("_") + run(_URL64, 24))),
    Keys(
        ["SG."],
        Form("sendgrid", text("SG.") + run(_URL64, 16, 32) + text(".") + run(_URL64, 32, 64)),
    ),
    Keys(["shp"], Form("shopify", text("shp") + run("[a-z]", 2, 2) + text("_") + run(_HEX, 32))),
    Keys(
        ["dop_v1_", "doo_v1_", "dor_v1_"],
        Form("digitalocean", text("do") + one("[opr]") + text("_v1_") + run(_HEX, 64)),
    ),
    Keys(["AGE-SECRET-KEY-1"], Form("age", text("AGE-SECRET-KEY-1") + run("[A-Z0-9]", 50))),
    Keys(["tskey-"], Form("tailscale", text("tskey-") + run(_URL64, 24))),
    Keys(["lin_api_"], Form("linear", text("lin_api_") + run(_ALNUM, 32))),
    Keys(["dapi"], Form("databricks", text("dapi") + run("[0-9a-f]", 32))),
    Keys(["ATATT3"], Form("atlassian", text("ATATT3") + run("[A-Za-z0-9_=-]", 60))),
    Keys(["rubygems_"], Form("rubygems", text("rubygems_") + run("[0-9a-f]", 48))),
    Keys(["gsk_"], Form("groq", text("gsk_") + run(_ALNUM, 40))),
    Keys(["ntn_"], Form("notion", text("ntn_") + run(_ALNUM, 40))),
    Keys(["sbp_"], Form("supabase", text("sbp_") + run("[0-9a-f]", 40))),
    Keys(["xai-"], Form("xai", text("xai-") + run(_ALNUM, 60))),
    Keys(["pplx-"], Form("perplexity", text("pplx-") + run(_ALNUM, 40))),
    Keys(["palyra_0"], Form("palyra", text("palyra_") + run("[0-9A-Z]", 26, 26) + text("_") + run("[0-9a-f]", 64))),
)

_LONG_WORD: Final = b"w" * 24
_SIGNS: Final = bytes(0x77 if (sign < 128 and chr(sign).isalnum()) or sign in b"_-" else 0x20 for sign in range(256))
_TAIL: Final = 64
"""A key that the data ends in the middle of, without a long word yet, began at most so far before its end."""
_KEY_SIGNS: Final = bytes(sign for sign in range(256) if _SIGNS[sign] == 0x77 or sign in b".=")
_ANCHOR = late(lambda: b"|".join(re.escape(anchor) for keys in LONG_KEYS for anchor in keys.anchors))


def long_keys_from(data: bytes, pos: int) -> int:
    """Where the search for long keys begins: at `pos` if any word is long enough, else in what the data ends in the
    middle of, else (its end) nowhere."""
    if _LONG_WORD in data.translate(_SIGNS):
        return pos
    tail = data[max(pos, len(data) - _TAIL) :]
    word = len(tail) - len(tail.rstrip(_KEY_SIGNS))
    begins = len(data) - word
    return begins if word > 2 and _ANCHOR.search(data, begins) is not None else len(data)

"""The tables of the one database, as a list of migrations. A migration that has shipped is never edited.

`entries` is an ordinary rowid table and stands before `checkpoints`; it is not STRICT and nothing refers to it by
foreign key, so that an auditor may copy, cut and attack it with plain SQL. Rows of `calls` and `blobs` are what
retention may remove; what they held stays bound by salted commitments in the entries.
"""

from __future__ import annotations

APPLICATION_ID = 0x504C5952  # PLYR

PAGE_BYTES = 2048
"""Of a new database. Measured beside 1024, 4096 and 8192: a call's two commits take least, and so does the file (a
quarter less than with 4096), since most of what is kept of a call is a little longer than one of those pages."""

HEAD_EVERY = 16
"""Entries after which `head` is stored again, and by less than which it is behind the newest checkpoint: most commits
write a page less, and the next process reads a few leaves more."""

Migration = tuple[str, ...]

MIGRATIONS: tuple[Migration, ...] = (
    (
        "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
        "CREATE TABLE migrations (version INTEGER PRIMARY KEY) STRICT",
        "CREATE TABLE entries (idx INTEGER PRIMARY KEY, leaf_hash BLOB, body BLOB)",
        "CREATE TABLE checkpoints (size INTEGER PRIMARY KEY, note TEXT)",
        """CREATE TABLE head (
               one INTEGER PRIMARY KEY CHECK (one = 1), size INTEGER NOT NULL, frontier BLOB NOT NULL
           ) STRICT""",
        "INSERT INTO head VALUES (1, 0, x'')",
        """CREATE TABLE runs (
               run_id TEXT PRIMARY KEY, principal TEXT NOT NULL, workspace TEXT NOT NULL,
               calls_used INTEGER NOT NULL, calls_max INTEGER NOT NULL,
               attempts_used INTEGER NOT NULL, attempts_max INTEGER NOT NULL,
               next_sequence INTEGER NOT NULL DEFAULT 0, created_unix_ms INTEGER NOT NULL
           ) STRICT, WITHOUT ROWID""",
        "CREATE TABLE blobs (sha256 BLOB PRIMARY KEY, data BLOB NOT NULL, kept_unix_ms INTEGER NOT NULL) STRICT",
        """CREATE TABLE calls (
               call_id TEXT PRIMARY KEY, run_id TEXT NOT NULL REFERENCES runs, tool TEXT NOT NULL,
               principal TEXT NOT NULL, input_sha256 TEXT NOT NULL, status TEXT NOT NULL, reason TEXT,
               owner_boot_id TEXT, owner_pid INTEGER, owner_start_ticks INTEGER,
               details BLOB REFERENCES blobs, outcome BLOB REFERENCES blobs,
               intent_index INTEGER, result_index INTEGER,
               opened_unix_ms INTEGER NOT NULL, closed_unix_ms INTEGER
           ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX calls_open ON calls (opened_unix_ms) WHERE status = 'open'",
        """CREATE TABLE openings (
               entry INTEGER NOT NULL, field TEXT NOT NULL, run_id TEXT, salt BLOB NOT NULL, PRIMARY KEY (entry, field)
           ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE artifacts (
               artifact_id TEXT PRIMARY KEY, run_id TEXT NOT NULL REFERENCES runs, name TEXT NOT NULL,
               sha256 TEXT NOT NULL, size_bytes INTEGER NOT NULL, created_unix_ms INTEGER NOT NULL
           ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX artifacts_run ON artifacts (run_id)",
    ),
    (
        """CREATE TABLE processes (
               process_id TEXT PRIMARY KEY, run_id TEXT NOT NULL REFERENCES runs, principal TEXT NOT NULL,
               call_id TEXT NOT NULL, command TEXT NOT NULL, lifetime TEXT NOT NULL,
               keeper_boot_id TEXT NOT NULL, keeper_pid INTEGER NOT NULL, keeper_start_ticks INTEGER NOT NULL,
               pid INTEGER NOT NULL, start_ticks INTEGER NOT NULL, cgroups TEXT NOT NULL,
               started_unix_ms INTEGER NOT NULL, expires_unix_ms INTEGER NOT NULL,
               status TEXT NOT NULL, ended_unix_ms INTEGER, exit_code INTEGER, signal INTEGER, reason TEXT,
               stopped_by TEXT, wall_us INTEGER, cpu_us INTEGER, max_rss_bytes INTEGER, output_bytes INTEGER,
               stdout_bytes INTEGER, stderr_bytes INTEGER
           ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX processes_run ON processes (run_id, principal, process_id)",
        "CREATE INDEX processes_running ON processes (started_unix_ms) WHERE status = 'running'",
    ),
    (
        """CREATE TABLE policy_texts (
               sha256 TEXT PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, files BLOB NOT NULL,
               kept_unix_ms INTEGER NOT NULL
           ) STRICT""",
        """CREATE TABLE policy_uses (
               number INTEGER PRIMARY KEY, version TEXT REFERENCES policy_texts, parent INTEGER REFERENCES policy_uses,
               at_unix_ms INTEGER NOT NULL, by TEXT NOT NULL
           ) STRICT""",
        "INSERT INTO policy_uses VALUES (0, NULL, NULL, 0, 'palyra')",
        """CREATE TABLE policy_pointer (
               one INTEGER PRIMARY KEY CHECK (one = 1), number INTEGER NOT NULL REFERENCES policy_uses
           ) STRICT""",
        "INSERT INTO policy_pointer VALUES (1, 0)",
        """CREATE TABLE run_labels (
               run_id TEXT NOT NULL, principal TEXT NOT NULL, label TEXT NOT NULL, call_id TEXT NOT NULL,
               at_unix_ms INTEGER NOT NULL, PRIMARY KEY (run_id, principal, label)
           ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX calls_of_run ON calls (run_id, opened_unix_ms)",
    ),
    (
        """CREATE TABLE approvals (
               approval_id TEXT PRIMARY KEY, principal TEXT NOT NULL, run_id TEXT NOT NULL, call_id TEXT NOT NULL,
               tool TEXT NOT NULL, program TEXT NOT NULL, binding TEXT NOT NULL, frame TEXT NOT NULL,
               likeness TEXT NOT NULL, shown BLOB NOT NULL REFERENCES blobs,
               asked_unix_ms INTEGER NOT NULL, expires_unix_ms INTEGER NOT NULL,
               state TEXT NOT NULL, asks INTEGER NOT NULL, told INTEGER NOT NULL,
               decided_unix_ms INTEGER, decided_by TEXT, self_approved INTEGER NOT NULL, note TEXT NOT NULL,
               scope TEXT, pattern TEXT NOT NULL, valid_until_unix_ms INTEGER, uses INTEGER NOT NULL,
               requested_index INTEGER NOT NULL, decided_index INTEGER, ended_index INTEGER, seal BLOB NOT NULL
           ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX approvals_binding ON approvals (binding, approval_id)",
        "CREATE INDEX approvals_likeness ON approvals (likeness)",
        "CREATE INDEX approvals_pending ON approvals (principal, expires_unix_ms) WHERE state = 'pending'",
        *(
            f"ALTER TABLE runs ADD COLUMN {name}_used INTEGER NOT NULL DEFAULT 0"
            for name in ("wall_us", "cpu_us", "output_bytes", "egress_bytes", "fuel")
        ),
        *(
            f"ALTER TABLE runs ADD COLUMN {name}_max INTEGER"
            for name in ("wall_us", "cpu_us", "output_bytes", "egress_bytes", "fuel")
        ),
        "CREATE INDEX runs_principal ON runs (principal, created_unix_ms)",
        """CREATE TABLE reservations (
               call_id TEXT PRIMARY KEY, run_id TEXT NOT NULL REFERENCES runs,
               wall_us INTEGER NOT NULL, cpu_us INTEGER NOT NULL, output_bytes INTEGER NOT NULL,
               egress_bytes INTEGER NOT NULL, fuel INTEGER NOT NULL
           ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX reservations_run ON reservations (run_id)",
        "CREATE INDEX approvals_granted ON approvals (principal, tool, valid_until_unix_ms) WHERE state = 'approved'",
    ),
    (
        # Keys of the journal in their order: `entry` is the handover's, -1 for the first key.
        "CREATE TABLE keys (entry INTEGER PRIMARY KEY, vkey TEXT NOT NULL) STRICT",
        "INSERT INTO keys SELECT -1, value FROM meta WHERE name = 'vkey'",
        # The key under which a run's openings are sealed; deleting it closes all of them.
        "CREATE TABLE run_keys (run_id TEXT PRIMARY KEY, key BLOB NOT NULL) STRICT, WITHOUT ROWID",
        # What was removed on purpose; each row has an act at `entry` that says the same.
        """CREATE TABLE deletions (
               entry INTEGER PRIMARY KEY, act TEXT NOT NULL, call_id TEXT, principal TEXT, before_unix_ms INTEGER,
               first INTEGER NOT NULL DEFAULT 0, count INTEGER NOT NULL DEFAULT 0
           ) STRICT""",
        # Kept values that nothing refers to any more, until they are overwritten (state/retention).
        "CREATE TABLE doomed (sha256 BLOB PRIMARY KEY) STRICT",
        # Sealed files of old entries, whose bodies are no longer in `entries`; `present` until retention removes them.
        """CREATE TABLE segments (
               first INTEGER PRIMARY KEY, count INTEGER NOT NULL, sha256 BLOB NOT NULL, bytes INTEGER NOT NULL,
               newest_unix_ms INTEGER NOT NULL, present INTEGER NOT NULL
           ) STRICT""",
        """CREATE TABLE witnesses (
               name TEXT PRIMARY KEY, kind TEXT NOT NULL, place TEXT NOT NULL, size INTEGER NOT NULL DEFAULT 0,
               note TEXT, seen_unix_ms INTEGER
           ) STRICT, WITHOUT ROWID""",
        # Heads of other installations, for which this one is the witness.
        """CREATE TABLE seen_heads (
               origin TEXT PRIMARY KEY, vkey TEXT NOT NULL, size INTEGER NOT NULL, note TEXT NOT NULL,
               seen_unix_ms INTEGER NOT NULL
           ) STRICT, WITHOUT ROWID""",
        # What is searched by; follows the journal and can be made again from it at any time (state/search).
        """CREATE TABLE search (
               idx INTEGER PRIMARY KEY, at_unix_ms INTEGER NOT NULL, kind TEXT NOT NULL, run_id TEXT, principal TEXT,
               tool TEXT, status TEXT, reason TEXT
           ) STRICT""",
        "CREATE INDEX search_run ON search (run_id) WHERE run_id IS NOT NULL",
        "CREATE INDEX search_principal ON search (principal) WHERE principal IS NOT NULL",
        "CREATE INDEX search_tool ON search (tool) WHERE tool IS NOT NULL",
        "CREATE INDEX search_status ON search (status) WHERE status IS NOT NULL",
        "CREATE INDEX search_reason ON search (reason) WHERE reason IS NOT NULL",
        "CREATE INDEX search_kind ON search (kind)",
        # The first entry of this minute or any later one, and the last of this or any earlier: clocks go back.
        """CREATE TABLE search_minutes (
               minute INTEGER PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL
           ) STRICT""",
        """CREATE VIRTUAL TABLE search_words USING
               fts5(words, content='', detail=none, tokenize="ascii tokenchars '._-:/@'")""",
    ),
    ("ALTER TABLE processes ADD COLUMN protected_created TEXT NOT NULL DEFAULT '[]'",),
    (
        # What skills keep for themselves.
        """CREATE TABLE guest_values (
               skill_id TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (skill_id, key)
           ) STRICT, WITHOUT ROWID""",
    ),
    (
        # The daemon's credentials: their digests alone.
        """CREATE TABLE tokens (
               token_id TEXT PRIMARY KEY, digest BLOB NOT NULL, principal TEXT NOT NULL, operator INTEGER NOT NULL,
               workspace TEXT NOT NULL, created_unix_ms INTEGER NOT NULL, expires_unix_ms INTEGER NOT NULL,
               revoked_unix_ms INTEGER
           ) STRICT, WITHOUT ROWID""",
        # Runs made over HTTP: what they narrow, for as long as their calls come.
        """CREATE TABLE run_terms (
               run_id TEXT PRIMARY KEY, principal TEXT NOT NULL, workspace TEXT NOT NULL, terms BLOB NOT NULL,
               created_unix_ms INTEGER NOT NULL, ended_unix_ms INTEGER
           ) STRICT, WITHOUT ROWID""",
        # Calls that were taken on and have not begun: after a crash they still do.
        """CREATE TABLE taken_calls (
               call_id TEXT PRIMARY KEY, principal TEXT NOT NULL, request BLOB NOT NULL, taken_unix_ms INTEGER NOT NULL
           ) STRICT, WITHOUT ROWID""",
    ),
    (
        # Skills by the digest of their payload; a row without its seal counts for nothing (skills/store).
        """CREATE TABLE skills (
               sha256 TEXT PRIMARY KEY, skill_id TEXT NOT NULL, version TEXT NOT NULL, publisher TEXT NOT NULL,
               key_id TEXT NOT NULL, status TEXT NOT NULL, reason TEXT NOT NULL, facts TEXT NOT NULL,
               installed_by TEXT NOT NULL, installed_unix_ms INTEGER NOT NULL,
               reviewed_by TEXT NOT NULL, reviewed_unix_ms INTEGER NOT NULL,
               enabled_by TEXT NOT NULL, enabled_unix_ms INTEGER NOT NULL, override TEXT NOT NULL,
               previous TEXT NOT NULL, changed_by TEXT NOT NULL, changed_unix_ms INTEGER NOT NULL,
               entry INTEGER NOT NULL, seal BLOB NOT NULL
           ) STRICT, WITHOUT ROWID""",
        "CREATE UNIQUE INDEX skills_active ON skills (skill_id) WHERE status = 'active'",
        "CREATE INDEX skills_of_id ON skills (skill_id)",
        """CREATE TABLE skill_payloads (
               sha256 TEXT PRIMARY KEY, manifest BLOB NOT NULL, bundle BLOB NOT NULL, bundle_sha256 TEXT NOT NULL,
               added_unix_ms INTEGER NOT NULL
           ) STRICT""",
        """CREATE TABLE skill_tools (
               tool_id TEXT NOT NULL, sha256 TEXT NOT NULL, PRIMARY KEY (tool_id, sha256)
           ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE skill_reports (
               number INTEGER PRIMARY KEY, sha256 TEXT NOT NULL, at_unix_ms INTEGER NOT NULL, body BLOB NOT NULL,
               seal BLOB NOT NULL
           ) STRICT""",
        "CREATE INDEX skill_reports_of ON skill_reports (sha256, number)",
        """CREATE TABLE skill_publishers (
               publisher TEXT NOT NULL, key_id TEXT NOT NULL, public_key BLOB NOT NULL,
               valid_from_unix_ms INTEGER NOT NULL, valid_until_unix_ms INTEGER, revoked_unix_ms INTEGER,
               replaced_by TEXT NOT NULL, how TEXT NOT NULL, added_by TEXT NOT NULL, entry INTEGER NOT NULL,
               seal BLOB NOT NULL, PRIMARY KEY (publisher, key_id)
           ) STRICT, WITHOUT ROWID""",
    ),
    (
        # Daemons of a cluster that say they live: a process of another machine cannot be looked at (cluster/leases).
        """CREATE TABLE daemons (
               boot_id TEXT NOT NULL, pid INTEGER NOT NULL, start_ticks INTEGER NOT NULL, seen_unix_ms INTEGER NOT NULL,
               PRIMARY KEY (boot_id, pid, start_ticks)
           ) STRICT, WITHOUT ROWID""",
    ),
    (
        # Calls of a run are counted before each decision: none of these rows changes its place when a call ends.
        "CREATE INDEX calls_refused ON calls (run_id, opened_unix_ms, principal, status) WHERE status = 'refused'",
    ),
    (
        # Logins of the console, by the digest of what the browser holds (wiring/sessions).
        """CREATE TABLE sessions (
               digest BLOB PRIMARY KEY, principal TEXT NOT NULL, credential_id TEXT NOT NULL,
               created_unix_ms INTEGER NOT NULL, expires_unix_ms INTEGER NOT NULL, used_unix_ms INTEGER NOT NULL
           ) STRICT, WITHOUT ROWID""",
    ),
    (
        # A principal's runs, the newest first: those that nobody used are forgotten (wiring/run_terms).
        "CREATE INDEX run_terms_of ON run_terms (principal, created_unix_ms)",
    ),
    (
        # From here on an act tells of every login; of earlier ones none does, and they are made once more.
        "DELETE FROM sessions",
    ),
    (
        # Opens what a run's first entry says of where it works and when it was made; NULL where it says nothing.
        "ALTER TABLE runs ADD COLUMN salt BLOB",
    ),
    (
        # Guarded paths that a run's calls created, which stay open to it (guard/look_created).
        """CREATE TABLE created_paths (
               run_id TEXT NOT NULL, principal TEXT NOT NULL, path BLOB NOT NULL, stamp TEXT NOT NULL,
               PRIMARY KEY (run_id, principal, path)
           ) STRICT, WITHOUT ROWID""",
    ),
    (
        # Which of the operator's policies were in force last, by their folder; `fault` is the digest of those there now
        # that cannot be used, empty when all can (wiring/versions).
        """CREATE TABLE policy_good (
               place TEXT PRIMARY KEY, sha256 TEXT NOT NULL REFERENCES policy_texts, fault TEXT NOT NULL
           ) STRICT, WITHOUT ROWID""",
    ),
)

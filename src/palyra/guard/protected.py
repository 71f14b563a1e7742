"""Names in a workspace that stay read-only or hidden: what other programs on the host run from there.

A list only. Not here: finding them on the disk, and where links lead (guard/look).
"""

from __future__ import annotations

BUILD_SERVICES = frozenset(
    """
    .github .gitlab-ci.yml .gitlab .circleci .travis.yml .drone.yml .woodpecker .woodpecker.yml .buildkite .teamcity
    azure-pipelines.yml .azure-pipelines bitbucket-pipelines.yml appveyor.yml .appveyor.yml Jenkinsfile .jenkins
    .gitea .forgejo .cirrus.yml .semaphore .tekton .build.yml .builds
    """.split()
)
"""Read at the top of a repository alone."""
PROTECTED_NAMES = BUILD_SERVICES | frozenset(
    """
    .vscode .idea .fleet .vs .zed .helix .exrc .nvimrc .nvim.lua .devcontainer .devcontainer.json
    .husky .githooks .git-hooks .pre-commit-config.yaml .pre-commit-config.yml .pre-commit-hooks.yaml prek.toml hk.pkl
    lefthook.yml lefthook.yaml lefthook.toml lefthook.json .lefthook.yml .lefthook.yaml .lefthook.toml .lefthook.json
    lefthook-local.yml lefthook-local.yaml .lefthook-local.yml .lefthook-local.yaml
    mise.toml .mise.toml mise.local.toml .mise.local.toml .mise
    .claude .cursor .codex .gemini .mcp.json .windsurf .kiro .amazonq .opencode opencode.json opencode.jsonc
    .aider.conf.yml .roo .continue .junie .qwen .trae .factory .crush.json crush.json .palyra palyra.toml
    """.split()
)
"""At the top of a workspace: what other programs on the host run from there without being asked again."""
IN_GIT = frozenset("hooks config config.worktree commondir rebase-merge rebase-apply sequencer".split())
"""The last three hold what `git rebase --continue` does next, `exec` lines among it."""
IN_WORKTREE = frozenset({"commondir", "config.worktree", "gitdir"})
HOOKS = frozenset(
    """
    applypatch-msg pre-applypatch post-applypatch pre-commit pre-merge-commit prepare-commit-msg commit-msg post-commit
    pre-rebase post-checkout post-merge pre-push pre-receive update proc-receive post-receive post-update
    reference-transaction push-to-checkout pre-auto-gc post-rewrite sendemail-validate fsmonitor-watchman
    p4-changelist p4-prepare-changelist p4-post-changelist p4-pre-submit post-index-change
    """.split()
)
"""What git runs from the folder of hooks: of that folder nothing else."""
GIT_STORES = frozenset("objects refs logs info lfs rr-cache hooks".split())
"""Folders of a repository with many folders in them, none of them a repository."""
ENV_EXAMPLES = frozenset(f".env.{name}" for name in ("example", "sample", "template", "dist", "defaults"))
"""Of the .env files, those made to be read; they stay readable, not writable."""

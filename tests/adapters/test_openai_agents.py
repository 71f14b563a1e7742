"""A session of the OpenAI Agents adapter, stored and taken up again, deletes nothing that it did not make."""

from __future__ import annotations

import asyncio
from pathlib import Path

from palyra.adapters.openai_agents import PREFIX, PalyraSandboxClient


def test_a_stored_state_that_names_a_foreign_folder_has_it_deleted_by_nobody(palyra, workspace):
    client = PalyraSandboxClient(palyra)
    foreign = [workspace / "precious", workspace / f"{PREFIX}elsewhere"]
    for folder in foreign:
        folder.mkdir()
        (folder / "kept").write_text("x")

    async def story() -> Path:
        session = await client.create()
        own = Path(str(session._inner.state.manifest.root))
        payload = client.serialize_session_state(session._inner.state)
        for folder in foreign:
            told = payload | {"manifest": payload["manifest"] | {"root": str(folder)}}
            await client.delete(await client.resume(client.deserialize_session_state(told)))
        assert own.is_dir()  # noqa: ASYNC240  # nothing else runs on this loop
        await client.delete(await client.resume(client.deserialize_session_state(payload)))
        return own

    own = asyncio.run(story())
    assert not own.exists()
    assert [(folder / "kept").read_text() for folder in foreign] == ["x", "x"]

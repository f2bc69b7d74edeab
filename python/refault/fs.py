"""An fsspec file system over the page cache, for ``refault::`` in URLs.

``fsspec.open("refault::file:///data/table.parquet", refault={"memory": "1G"})`` reads a local file through a cache of
one's own. Files of other file systems (``refault::s3://…``) cannot be cached so far, and are refused in words.
"""

from __future__ import annotations

from typing import Any

from fsspec.implementations.local import LocalFileSystem

from .arrays import Size
from .files import Cache, CachedFile


class CachedFileSystem(LocalFileSystem):  # type: ignore[misc, unused-ignore]
    """Local files, read through one :class:`refault.Cache`.

    Parameters
    ----------
    memory : bytes of file contents at most, or a text such as ``"1G"``
    policy : as on the command line
    """

    protocol = ("refault",)

    def __init__(
        self,
        memory: Size = "64M",
        policy: str | None = None,
        target_protocol: str | None = None,
        target_options: dict[str, Any] | None = None,
        fo: str | None = None,
        **rest: Any,
    ) -> None:
        super().__init__(**rest)
        if target_protocol not in (None, "file", "local"):
            raise ValueError(f"refault:: caches local files only so far, not {target_protocol}://")
        self.cache = Cache(memory, policy)

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **rest: Any) -> Any:
        if mode != "rb":
            return super()._open(path, mode, block_size=block_size, **rest)
        return CachedFile(self.cache, self._strip_protocol(path))

    def stats(self) -> dict[str, int | float]:
        """See :meth:`refault.Cache.stats`."""
        return self.cache.stats()

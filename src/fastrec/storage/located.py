"""Where the contents of files are: in plain files, in plain copies, or in streams."""

from __future__ import annotations

from collections.abc import Sequence

from fastrec.storage.compression import Compression, Content, FileContent, contents_of
from fastrec.storage.decompressed_cache import expanded

__all__ = ["Located"]


class Located:
    """Files, and where their contents are, found out when it is needed, and once.

    Whoever reads the same files in another way shares it.

    Parameters
    ----------
    files : sequence of str
    compression, cache_dir
        As `fastrec.open` has them.
    expansion_max : int
        How many times its size a file may become in `cache_dir`.
    """

    def __init__(
        self,
        files: Sequence[str],
        compression: Compression = "auto",
        cache_dir: str | None = None,
        expansion_max: int = 1,
    ) -> None:
        self.files = tuple(files)
        self._compression = compression
        self._cache_dir = cache_dir
        self._expansion_max = expansion_max
        self._contents: list[Content] | None = None
        self._paths: list[str] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        options = (self._compression, self._cache_dir, self._expansion_max)
        return Located, (self.files, *options)

    # No locks: two threads that find out the same thing at once find the same.

    @property
    def contents(self) -> list[Content]:
        """What each file is, by its beginning, or as the caller says.

        Raises
        ------
        OSError
            If one cannot be read: it must not be taken for what it is not.
        """
        if self._contents is None:
            self._contents = contents_of(self.files, self._compression)
        return self._contents

    @property
    def is_streamed(self) -> bool:
        """Whether there are files whose records can only be had one after another."""
        return self._cache_dir is None and any(
            content != "plain" for content in self.contents
        )

    @property
    def paths(self) -> list[str]:
        """Where each file lies as a plain one. Expands what is compressed.

        Raises
        ------
        CorruptionError, LimitError, OSError
            If that is not possible.
        """
        if self._paths is None:
            if self._cache_dir is None:
                self._paths = list(self.files)
            else:
                self._paths = expanded(
                    self.files, self.contents, self._cache_dir, self._expansion_max
                )
        return self._paths

    def to_stream(self) -> list[FileContent]:
        """Return the files to read one after another, and what each is."""
        if self._cache_dir is None:
            return list(zip(self.files, self.contents, strict=True))
        return [(path, "plain") for path in self.paths]

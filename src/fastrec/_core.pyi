from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, final, type_check_only

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer, Never

from fastrec.arrays import Array, Batch
from fastrec.assembly import Parts
from fastrec.spec import Column, RowRule

__version__: str

@type_check_only
class _Pybind11Type(type): ...

def crc32c(data: Buffer, kernel: str | None = None) -> int: ...
def crc32c_kernel() -> str: ...
def crc32c_kernels() -> list[str]: ...
def recognize(path: bytes) -> str: ...
def is_remote(path: bytes) -> bool: ...

@final
class FileTable(metaclass=_Pybind11Type):
    def __init__(
        self, paths: Sequence[bytes], ios: Sequence[str], names: Sequence[bytes] = ()
    ) -> None: ...
    def __len__(self) -> int: ...
    def expect(self, file: int, index: Index) -> None: ...

@final
class ScanProgress(metaclass=_Pybind11Type):
    def __init__(self) -> None: ...
    @property
    def n_bytes(self) -> int: ...
    def cancel(self) -> None: ...

@final
class Index(metaclass=_Pybind11Type):
    def __init__(self, *args: Never, **kwargs: Never) -> None: ...
    @staticmethod
    def build(
        path: bytes,
        io: str,
        n_threads: int,
        progress: ScanProgress,
        name: bytes = b"",
    ) -> Index: ...
    @staticmethod
    def load(path: bytes, size: int, mtime_ns: int) -> Index | None: ...
    @staticmethod
    def from_offsets(
        offsets: NDArray[np.uint64], size: int, mtime_ns: int, path: bytes
    ) -> Index: ...
    def save(self, path: bytes) -> None: ...
    def __len__(self) -> int: ...
    @property
    def offsets(self) -> NDArray[np.uint64]: ...

@final
class Catalog(metaclass=_Pybind11Type):
    def __init__(
        self,
        indexes: Sequence[Index],
        pieces: Iterable[tuple[int, int, int] | NDArray[np.int64]] = (),
    ) -> None: ...
    def __len__(self) -> int: ...
    def places(self, numbers: NDArray[np.int64]) -> list[tuple[int, int, int]]: ...

@final
class Schema(metaclass=_Pybind11Type):
    def __init__(
        self,
        columns: list[Column],
        rules: list[RowRule] = ...,
        compose: Callable[[list[Array]], Batch] | None = None,
    ) -> None: ...

def parse_examples(
    schema: Schema,
    pool: BlockPool,
    examples: Sequence[Buffer] | tuple[NDArray[np.uint8], NDArray[np.int64]],
) -> Batch: ...
def survey_examples(
    examples: Sequence[Buffer] | tuple[NDArray[np.uint8], NDArray[np.int64]],
) -> tuple[int, list[tuple[bytes, dict[str, Any]]]]: ...

@final
class ByteStreams(metaclass=_Pybind11Type):
    def __init__(self, n_streams: int, n_ahead: int, bytes_ahead: int) -> None: ...
    def begin(self) -> int | None: ...
    def push(self, stream: int, data: Buffer) -> bool: ...
    def end(self, stream: int) -> None: ...
    def fail(
        self, stream: int, code: str, reason: str, path: bytes, offset: int | None
    ) -> None: ...
    def fail_of_system(self, stream: int, errno: int, path: bytes) -> None: ...
    def stop(self) -> None: ...

@final
class FrameStream(metaclass=_Pybind11Type):
    def __init__(
        self, streams: ByteStreams, files: FileTable, order: Sequence[int]
    ) -> None: ...
    def next(self) -> bytes | None: ...

@final
class StreamScan(metaclass=_Pybind11Type):
    def __init__(self, name: bytes) -> None: ...
    def feed(self, data: Buffer) -> None: ...
    def finish(self) -> None: ...
    @property
    def offsets(self) -> NDArray[np.uint64]: ...
    @property
    def payload_crcs(self) -> NDArray[np.uint32]: ...

@final
class BlockPool(metaclass=_Pybind11Type):
    def __init__(self, idle_bytes_max: int) -> None: ...
    def stats(self) -> tuple[int, int, int]: ...

@final
class Sources(metaclass=_Pybind11Type):
    def __init__(
        self, files: FileTable, schemas: list[Schema], schema_of: Sequence[int]
    ) -> None: ...

@final
class Shuffle(metaclass=_Pybind11Type):
    def __init__(self, *args: Never, **kwargs: Never) -> None: ...
    @staticmethod
    def sequential() -> Shuffle: ...
    @staticmethod
    def shuffled() -> Shuffle: ...
    @staticmethod
    def blocks(block_records: int, n_lanes: int) -> Shuffle: ...

@final
class Order(metaclass=_Pybind11Type):
    def __init__(self, *args: Never, **kwargs: Never) -> None: ...
    @staticmethod
    def of(
        shuffle: Shuffle, n_records: int, seed: int, epoch: int, stream: int = 0
    ) -> Order: ...
    @staticmethod
    def listed(records: NDArray[np.int64]) -> Order: ...
    @staticmethod
    def mixed(
        components: Sequence[tuple[int, float, Shuffle]],
        length: int,
        run: int,
        draw_seed: int,
        seed: int,
        epoch: int,
    ) -> Order: ...
    @staticmethod
    def window(
        firsts: NDArray[np.int64],
        counts: NDArray[np.int64],
        n_slots: int,
        seed: int,
        epoch: int,
        stream: int = 0,
    ) -> Order: ...
    def __len__(self) -> int: ...
    @property
    def n_lanes(self) -> int: ...
    def records(self, positions: NDArray[np.int64]) -> NDArray[np.int64]: ...

@final
class StepGrid(metaclass=_Pybind11Type):
    def __init__(
        self,
        *,
        n_positions: int,
        batch_size: int,
        phase: int = 0,
        drop_last: bool = False,
        pad_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
        n_lanes: int = 1,
        bounds: NDArray[np.int64] | None = None,
    ) -> None: ...
    @property
    def n_steps(self) -> int: ...
    def step_at(self, position: int) -> int: ...
    def range(self, step: int) -> tuple[int, int]: ...
    def positions(self, step: int) -> NDArray[np.int64]: ...
    def n_rows(self, step: int, n_valid: int) -> int: ...

@final
class Pipeline(metaclass=_Pybind11Type):
    def __init__(
        self,
        sources: Sources,
        catalog: Catalog | None,
        order: Order | None,
        grid: StepGrid,
        first_step: int,
        pool: BlockPool,
        *,
        n_threads: int,
        prefetch: int,
        memory_limit: int,
    ) -> None: ...
    @staticmethod
    def of_streams(
        sources: Sources,
        streams: ByteStreams,
        order: Sequence[int],
        grid: StepGrid,
        *,
        is_counted: bool,
        first_step: int,
        first_position: int,
        bytes_max: int,
        window: tuple[int, int, int, int] | None,
        pool: BlockPool,
        n_threads: int,
        prefetch: int,
        memory_limit: int,
    ) -> Pipeline: ...
    def next(self) -> tuple[Parts, int, int, int, int] | None: ...
    def stop(self) -> None: ...

def read_record(files: FileTable, catalog: Catalog, number: int) -> bytes: ...
def read_records(
    files: FileTable, catalog: Catalog, pool: BlockPool, numbers: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]: ...
def decode_records(
    sources: Sources,
    catalog: Catalog,
    pool: BlockPool,
    numbers: NDArray[np.int64],
    n_rows: int = 0,
) -> Parts: ...
def stored_checksums(
    files: FileTable, catalog: Catalog, numbers: NDArray[np.int64]
) -> NDArray[np.uint32]: ...
def survey(
    files: FileTable, catalog: Catalog, numbers: NDArray[np.int64]
) -> tuple[int, list[tuple[bytes, dict[str, Any]]]]: ...
def survey_stream(
    stream: FrameStream, n_records_max: int, bytes_max: int
) -> tuple[int, int, list[tuple[bytes, dict[str, Any]]]]: ...

@final
class FileWriter(metaclass=_Pybind11Type):
    def __init__(
        self, path: str | bytes | PathLike[str] | PathLike[bytes], *, overwrite: bool
    ) -> None: ...
    @property
    def path(self) -> str: ...
    @property
    def closed(self) -> bool: ...
    @property
    def n_records(self) -> int: ...
    @property
    def n_bytes(self) -> int: ...
    def write_example(self, features: Mapping[Any, Any], /) -> None: ...
    def write_record(self, record: Buffer, /) -> None: ...
    def close(self) -> None: ...
    def abandon(self) -> None: ...

def encode_example(features: Mapping[Any, Any], /) -> bytes: ...

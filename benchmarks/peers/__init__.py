"""The readers that are measured, each imported only in the process that measures it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from peers.reader import Reader
    from workloads import Prepared

__all__ = ["DEFAULT", "ENVIRONMENT", "MissingPeerError", "open_reader"]

# Name of a peer -> its module here, and the package it needs.
MODULES = {
    "fastrec": ("fastrec_loader", "fastrec"),
    "tf.data": ("tf_data", "tensorflow"),
    "tfrecord": ("tfrecord_package", "tfrecord"),
    "memcpy": ("memcpy", "numpy"),
}
DEFAULT = tuple(MODULES)

# Variables that a peer's process starts with. TensorFlow allocates every batch anew:
# glibc is told to keep that memory instead of giving it back to the system, which
# spares tf.data the page faults and up to doubles its rate on images.
ENVIRONMENT = {
    "tf.data": {
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
        "MALLOC_TOP_PAD_": str(64 << 20),
        "MALLOC_TRIM_THRESHOLD_": str(4 << 30),
    },
}


class MissingPeerError(Exception):
    """The peer is not installed here, or cannot do what is asked."""


def open_reader(peer: str, prepared: Prepared, threads: int, batch_size: int) -> Reader:
    """Make the reader called `peer`, or ``peer:form`` for one of its other forms."""
    name, _, form = peer.partition(":")
    if name not in MODULES:
        raise MissingPeerError(f"no such peer; there are {', '.join(MODULES)}")
    module_name, package = MODULES[name]
    try:
        module = importlib.import_module(f"peers.{module_name}")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != package:
            raise
        raise MissingPeerError(f"{package} is not installed") from error
    reader: Reader = module.open_reader(prepared, threads, batch_size, form)
    return reader

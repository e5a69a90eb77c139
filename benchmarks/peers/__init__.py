"""The readers that are measured, each imported only in the process that measures it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from peers.reader import MissingPeerError

if TYPE_CHECKING:
    from peers.reader import Reader

__all__ = ["PEERS", "SCALES", "Peer", "default_peers", "load"]

# TensorFlow allocates new memory for every batch: glibc is configured to keep it instead of
# giving it back to the system, which spares tf.data the page faults and up to doubles
# its rate on images.
TENSORFLOW = {
    "CUDA_VISIBLE_DEVICES": "-1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TOP_PAD_": str(64 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(4 << 30),
}


@dataclass(frozen=True)
class Peer:
    """A reader: its module here, the package it needs, and what install.py installs.

    `constraints` hold while its packages are built, too; `environment` are the
    variables that its process starts with. Without `requirements`, it runs where
    fastrec is.
    """

    module: str
    package: str
    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


PEERS = {
    "fastrec": Peer("fastrec_loader", "fastrec"),
    "tf.data": Peer(
        "tf_data",
        "tensorflow",
        ("tensorflow-cpu==2.21.0", "numpy==2.4.6"),
        environment=TENSORFLOW,
    ),
    "tfx_bsl": Peer(
        "tfx_bsl_decoder",
        "tfx_bsl",
        ("tfx-bsl==1.21.0", "numpy==2.4.6"),
        environment=TENSORFLOW,
    ),
    "dali": Peer("dali", "nvidia", ("nvidia-dali-cuda130==2.4.0", "numpy==2.4.6")),
    "grain": Peer(
        "grain_arrayrecord",
        "grain",
        ("grain==0.2.18", "array-record==0.8.6", "protobuf==7.36.2", "numpy==2.4.6"),
    ),
    "tfr-reader": Peer(
        "tfr_reader_package",
        "tfr_reader",
        ("tfr-reader==1.1.0", "protobuf==7.36.2", "numpy==2.4.6"),
        constraints=("cython<3.1",),  # Later ones reject its sources.
    ),
    "tfrecord": Peer(
        "tfrecord_package",
        "tfrecord",
        ("tfrecord==1.14.6", "protobuf==7.36.2", "numpy==2.4.6"),
    ),
    "protobuf": Peer("protobuf_alone", "google", ("protobuf==7.36.2", "numpy==2.4.6")),
    "memcpy": Peer("memcpy", "numpy"),
    "limit": Peer("limit", "numpy"),
}


SCALES = ("memcpy", "limit")  # not readers


def default_peers(workload: str, threads: int) -> list[str]:
    """All peers, and the forms of tf.data that are or may be the fastest there."""
    forms = ["tf.data:record"] if workload == "images" else []
    if threads > 1:
        forms += ["tf.data:batch", "tf.data:reads"]
    names = [*PEERS]
    return [*names[:2], *forms, *names[2:]]


def load(name: str) -> type[Reader]:
    """Import the reader of the peer called `name`: a class, made with a `Setup`."""
    if name not in PEERS:
        raise MissingPeerError(f"no such peer; there are {', '.join(PEERS)}")
    peer = PEERS[name]
    try:
        module = importlib.import_module(f"peers.{peer.module}")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != peer.package:
            raise
        raise MissingPeerError(f"{peer.package} is not installed") from error
    reader: type[Reader] = module.PeerReader
    return reader

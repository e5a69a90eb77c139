"""All campaigns: what each promises, and the command that tries it."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True)
class Campaign:
    """A promise, and the command that tries it."""

    name: str
    promise: str
    command: str
    """``{python}``, ``{runs}`` and ``{seed}`` are filled in."""
    runs: int
    """By default."""
    unit: str
    """What is counted."""


def of_tests(name: str, promise: str, selection: str, runs: int, unit: str) -> Campaign:
    """Return a campaign of tests that repeat themselves FASTREC_TEST_RUNS times."""
    command = (
        "env FASTREC_TEST_RUNS={runs} FASTREC_TEST_SEED={seed} {python} -m pytest -q "
        "--timeout=0 -o faulthandler_timeout=0 -p no:cacheprovider "
        f"--hypothesis-seed={{seed}} {selection}"
    )
    return Campaign(name, promise, command, runs, unit)


def fuzz(target: str, promise: str) -> Campaign:
    """Return a campaign of a libFuzzer target."""
    command = "{python} -m campaigns.fuzz --executions {runs} --seed {seed}"
    return Campaign(
        f"fuzz-{target}", promise, f"{command} --targets {target}", 10_000_000, "inputs"
    )


CAMPAIGNS = [
    Campaign(
        "suite",
        "The tests pass, each once.",
        "{python} -m pytest -q -n auto -p no:cacheprovider --hypothesis-seed={seed}",
        1,
        "run of all tests",
    ),
    of_tests(
        "flips",
        'One flipped bit costs one record: with `on_error="resync"`, all others come '
        "back.",
        "tests/core/test_recovery.py -k flips_in_larger_files",
        200_000,
        "flips",
    ),
    Campaign(
        "damaged-files",
        "Files of Examples, SequenceExamples and other records are damaged in eleven ways, "
        "and GZIP and ZLIB streams in nine: with every error policy, order, number of "
        "threads and I/O, exactly the records come that a reader in plain Python finds, "
        "and errors and reports name the place.",
        "{python} -m campaigns.damaged_files --files {runs} --seed {seed}",
        100_000,
        "files",
    ),
    Campaign(
        "damaged-images",
        "Images of each kind are damaged in five ways, and forged: chunks that claim "
        "gigabytes, thousands of scans, sizes of 0 or beyond the limit. Each is delivered "
        "or skipped for a reason, images next to it have their pixels, and an epoch takes "
        "less than 48 MiB (for images of at most 1,000,000 pixels).",
        "{python} -m campaigns.damaged_images --images {runs} --seed {seed}",
        200_000,
        "images",
    ),
    Campaign(
        "differential",
        "Generated records, valid, odd and malformed, have the columns that TensorFlow "
        "and protobuf read, or a difference that docs/semantics.md lists.",
        "{python} -m campaigns.differential --cases {runs} --seed {seed}",
        2_000_000,
        "records and batches",
    ),
    Campaign(
        "fastpath",
        "The fast decoder returns the columns or the fault of the reference decoder, on "
        "every instruction set of the CPU.",
        "{python} -m campaigns.fastpath --records {runs} --seed {seed}",
        10_000_000,
        "records",
    ),
    of_tests(
        "changing-files",
        "A file is shortened, overwritten, rewritten or replaced while it is read, mapped "
        "and by pread: no value that was never in the file is delivered.",
        "tests/core/test_changing_files.py -k no_disturbance",
        1_000,
        "passes in each way of reading",
    ),
    of_tests(
        "resume",
        "Training runs of 1 to 4 ranks in every order are cut and resumed with another "
        "number of ranks, batch size and threads: each record comes once an epoch.",
        'tests/loader/test_resume.py -k "random_training or restart_at_any"',
        600,
        "runs, and cuts of each order",
    ),
    of_tests(
        "forks",
        "After a fork at any moment, both processes read on.",
        "tests/loader/test_processes.py -k fork",
        200,
        "forks of each of nine kinds",
    ),
    of_tests(
        "exits",
        "An interpreter exits silently while loaders and threads live.",
        "tests/loader/test_processes.py -k silently",
        60,
        "exits of each kind",
    ),
    *(
        Campaign(
            f"signals-{mode}",
            f"A signal handler raises {times} in any call of loaders, Arrow streams, writers, "
            "rewriting, indexing, copying, verification and conversion: nothing is lost "
            "or repeated, files are complete or absent, and no thread, descriptor, lock "
            "or temporary file is left.",
            f"{{python}} -m campaigns.interrupts {mode} --signals {{runs}} "
            "--seed {seed}",
            50_000,
            "signals",
        )
        for mode, times in (("single", "once"), ("storm", "2 to 20 times"))
    ),
    *(
        Campaign(
            f"signals-adapters-{mode}",
            f"A signal handler raises {times} in any call of the adapters of PyTorch, JAX, "
            "Keras, Grain and polars, those that are installed: the same.",
            f"{{python}} -m campaigns.interrupts {mode} adapters --signals {{runs}} "
            "--seed {seed}",
            50_000,
            "signals",
        )
        for mode, times in (("single", "once"), ("storm", "2 to 20 times"))
    ),
    Campaign(
        "shared-objects",
        "Threads that share an iterator, a loader, a dataset, a mix, a writer or a batch "
        "get what one thread alone would get, with and without the GIL.",
        "{python} -m campaigns.shared_objects {runs} {seed}",
        10_000,
        "runs of nine situations",
    ),
    of_tests(
        "kills-caches",
        "`kill -9` of a process that writes indexes, expansions and kept rows leaves nothing "
        "wrong that is believed.",
        "tests/core/test_faults.py tests/kept/test_kept_files.py -k killed",
        200,
        "kills",
    ),
    of_tests(
        "kept-rows",
        "Kept rows of generated schemas are those of the files, in every order and with "
        "every error policy, and a changed byte is never delivered.",
        "tests/kept/test_kept_batches.py tests/kept/test_kept_files.py "
        '-k "any_schema or changed_byte"',
        1_000,
        "schemas, and changed bytes",
    ),
    of_tests(
        "kills-writers",
        "`kill -9` of a writer leaves complete files and temporary ones, from which "
        "`fastrec repair` saves the records.",
        "tests/writer/test_killed_writers.py -k kill_9",
        200,
        "kills of each of nine kinds",
    ),
    Campaign(
        "power-cut",
        "A power cut at any call of a writer or command leaves complete files under final "
        "names, and caches that are not believed, in a model of what ext4, XFS and weaker "
        "file systems may lose.",
        "{python} -m campaigns.power_cut --runs {runs} --seed {seed}",
        20_000,
        "states of a disk",
    ),
    Campaign(
        "power-cut-mounted",
        "The same when real ext4 and XFS file systems are shut down (needs root).",
        "{python} -m campaigns.power_cut_mounted --runs {runs} --seed {seed}",
        330,
        "shutdowns",
    ),
    Campaign(
        "remote-faults",
        "Requests of remote files and uploads fail, stall, are cut or answered wrongly: "
        "what is delivered is right, and nothing is lost if all faults are transient.",
        "{python} -m campaigns.remote_faults --faults {runs} --seed {seed}",
        10_000,
        "faults",
    ),
    Campaign(
        "shared-caches-mounted",
        "Eight processes that share a `cache_dir=` of remote files are killed, or its disk "
        "of 50 MB fills (needs root): a process reads everything or ends with the error "
        "of a full disk, and the next one reads every row right and leaves no temporary "
        "file.",
        "{python} -m campaigns.shared_caches --rounds {runs} --seed {seed}",
        120,
        "rounds of eight processes",
    ),
    Campaign(
        "soak",
        "Epochs, plain, GZIP, remote with faults, mixed, transformed, abandoned, interrupted "
        "and ended by an exception: every value is right, and memory grows by at most 1 %, "
        "open files and threads by none.",
        "{python} -m campaigns.soak {runs} {seed}",
        50_000,
        "epochs",
    ),
    fuzz(
        "framing",
        "Any bytes, as a TFRecord file: no crash, and a scan in segments finds the frames "
        "of one in one piece.",
    ),
    fuzz(
        "recovery",
        "Any bytes, as a damaged file, mapped and by pread: exactly the frames and gaps "
        "of the definition of each recovery.",
    ),
    fuzz(
        "index",
        "Any bytes, as an index file: it is used only if it belongs to its file, and all "
        "records that it gives are frames of the file.",
    ),
    fuzz(
        "stream",
        "Any bytes, as the content of a compressed file, in pieces: the frames, errors "
        "and gaps of a scan.",
    ),
    fuzz(
        "claims",
        "Any bytes, as files that an epoch reads without an index: each step has the "
        "records of a plain walk.",
    ),
    fuzz(
        "example",
        "Any bytes, as `tf.train.Example`s: no crash, consistent columns, and the fast "
        "path agrees with the reference decoder.",
    ),
    fuzz("sequence", "The same for `tf.train.SequenceExample`s."),
    fuzz("schema", "The same for any schema, and records of it."),
    fuzz(
        "tensor",
        "Any bytes, as a TensorProto: the same values in every form and in a column.",
    ),
    fuzz(
        "plan",
        "Records in the form of writers, and nearly: all plan kernels and the learned "
        "fast path agree with the reference decoder.",
    ),
    fuzz(
        "encode",
        "Any rows: decoding what the encoders write gives back every bit, and both "
        "encoders write the same bytes.",
    ),
    fuzz("crc32c", "Any bytes and cuts: all checksum kernels agree."),
    fuzz("varint", "Any bytes and counts: all varint kernels agree."),
]


def named(name: str, campaigns: Iterable[Campaign] = CAMPAIGNS) -> Campaign:
    """Return the campaign with a name."""
    for campaign in campaigns:
        if campaign.name == name:
            return campaign
    sys.exit(f"no campaign is named {name}; see: python -m campaigns list")

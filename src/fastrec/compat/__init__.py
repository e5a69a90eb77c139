"""Drop-in names of other libraries: a port changes one import."""

from fastrec.compat import dali_tfrecord, tf_io, tf_train

__all__ = ["dali_tfrecord", "tf_io", "tf_train"]


def __dir__() -> list[str]:
    return __all__

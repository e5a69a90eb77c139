"""The names of other libraries for what fastrec does: a port changes one import."""

from fastrec.compat import dali_tfrecord, tf_io

__all__ = ["dali_tfrecord", "tf_io"]

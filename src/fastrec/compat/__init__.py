"""Drop-in replacements for parts of TensorFlow and DALI: change only the import."""

import importlib
import sys
from typing import TYPE_CHECKING, Any

from fastrec.compat import dali_tfrecord, tf_io
from fastrec.hints import missing_attribute

if TYPE_CHECKING:
    from fastrec.compat import tf_train as tf_train

__all__ = ["dali_tfrecord", "tf_io", "tf_train"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name != "tf_train":
            raise missing_attribute(sys.modules[__name__], name)
        try:
            return importlib.import_module("fastrec.compat.tf_train")
        except ModuleNotFoundError as error:  # without protobuf, hasattr() is False
            raise AttributeError(str(error)) from error


def __dir__() -> list[str]:
    return __all__

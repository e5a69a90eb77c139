"""Damaged and forged images of every kind.

Goal
    An image that is damaged, or whose header claims more than it has, is delivered or
    skipped; it costs neither the images next to it nor much memory.
Method
    A few hundred images of the campaign damaged_images.py.
"""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("PIL.Image")
pytest.importorskip("cv2")

N_IMAGES = 640


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_damaged_images_are_delivered_or_skipped_in_bounded_memory() -> None:
    from campaigns.damaged_images import check_images

    outcomes = check_images(seed=0, n_images=N_IMAGES)
    assert outcomes["runs"] == N_IMAGES
    assert outcomes["of too many scans"] > 0
    assert outcomes["without pixels"] > 0
    assert outcomes["damaged"] > 0

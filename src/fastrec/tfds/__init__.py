"""Read directories of tensorflow-datasets: splits, slices and features."""

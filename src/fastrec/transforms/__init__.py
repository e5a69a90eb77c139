"""The caller's transforms, and the origin of a batch's rows."""

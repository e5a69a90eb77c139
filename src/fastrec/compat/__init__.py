"""The names of other libraries for what fastrec does: a port changes one import."""

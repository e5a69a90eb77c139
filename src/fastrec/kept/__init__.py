"""Keep decoded rows in a directory, to read them again at memory speed."""

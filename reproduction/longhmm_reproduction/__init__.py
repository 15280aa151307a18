"""Models and experiments that others have published, to be run again."""

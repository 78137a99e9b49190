"""What went wrong, in one line for the person who can mend it."""


class GlassError(ValueError):
    """A mistake in what the program was given: a file, a setting, a text."""

"""What holds for every test."""

from hypothesis import settings

# How long an example takes says something about the machine's load, not about the code.
settings.register_profile("farflung", deadline=None)
settings.load_profile("farflung")

"""Requests with a form that a program can check: so many words, a JSON object, an opening, capitals only, ..."""

from farflung.envs.instructions.environment import Instructions

__all__ = ["Instructions"]

"""Typed configuration: frozen models, TOML with overrides on top, and errors that say what to do.

    base.py     the base class of every section
    load.py     TOML file + `--section.key value` -> validated config with the source of each value
    explain.py  validation failures as sentences
    render.py   a config as TOML, and its digest

This package does not know any section: each component owns its own beside its code. Nothing here reads the environment.
"""

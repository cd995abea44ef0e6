"""Typed configuration: frozen models, TOML with overrides on top, and errors that say what to do.

    base.py       the base class of every section
    fields.py     dotted keys of a model: which exist, of which type, which one was meant
    toml_file.py  a TOML file with the line of each key
    overrides.py  `--section.key value`, typed by the field
    load.py       file + overrides -> validated config with the source of each value
    explain.py    validation failures as sentences
    reference.py  every key with type, default, unit, bounds, meaning
    render.py     a config as TOML, and its digest

This package does not know any section: each component owns its own beside its code. Nothing here reads the environment.
"""

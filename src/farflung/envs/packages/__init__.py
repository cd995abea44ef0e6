"""Packages of environments: from a project folder into an index, and from there onto this machine.

    project.py    a project folder as a manifest and files; nothing of it is run
    archive.py    those files as one zip, and back, every byte checked
    index.py      a folder or bucket that holds published versions
    home.py       what is installed here, under a lock
    names.py      names that a package may not take

The digest of a manifest names every byte of a package. Nothing here imports a package's code: that is done by
`envs.guest` behind walls, or by `envs.packages.agreed` where the operator agreed to the digest.
"""

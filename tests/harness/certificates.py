"""Certificates for tests, made by the openssl of this machine."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Certificate:
    """Self-signed, for 127.0.0.1: its own authority."""

    certificate: str
    key: str


def make_certificate(folder: Path, name: str = "server", *, address: str = "127.0.0.1") -> Certificate:
    """Skips the test on machines without openssl."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("there is no openssl to make a certificate with")
    made = Certificate(str(folder / f"{name}.pem"), str(folder / f"{name}.key"))
    subprocess.run(
        [
            program, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-days", "2", "-subj", f"/CN={name}", "-addext", f"subjectAltName=IP:{address}",
            "-keyout", made.key, "-out", made.certificate,
        ],
        check=True, capture_output=True, timeout=30,
    )  # fmt: skip
    return made

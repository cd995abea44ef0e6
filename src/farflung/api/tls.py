"""TLS by files: a certificate for who listens, certificates of authorities for who calls.

Without files a caller trusts what the system trusts (and what SSL_CERT_FILE names); names are always checked.
"""

import ssl

from farflung.errors import UserError


def server_context(certificate: str, key: str, section: str) -> ssl.SSLContext | None:
    """For who listens; None without a certificate.

    Args:
        certificate: PEM file with the chain.
        key: PEM file of its private key.
        section: of the settings `tls_certificate` and `tls_key`, for the message.

    Raises:
        UserError: the files cannot be read, or do not belong together.
    """
    if not certificate:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise UserError(
            f"{section}.tls_certificate {certificate} with {section}.tls_key {key}: {error}; both must be PEM files "
            "that belong together"
        ) from error
    return context


def client_context(ca_file: str) -> ssl.SSLContext | None:
    """For who calls; None = as the system does it.

    Raises:
        UserError: the file holds no certificates.
    """
    if not ca_file:
        return None
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise UserError(f"run.ca_file {ca_file}: {error}; it must be a PEM file with certificates") from error

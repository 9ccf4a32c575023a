"""An authority and certificates of a cluster, as an administrator makes them."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def made(directory: Path, name: str = "cluster") -> dict[str, Path]:
    """Make an authority and one certificate of it; return ca, cert and key as PEM files."""
    directory.mkdir(parents=True)
    authority, subject = ec.generate_private_key(ec.SECP256R1()), _name(f"{name} authority")
    ca = _certificate(subject, subject, authority, authority, is_authority=True)
    key = ec.generate_private_key(ec.SECP256R1())
    cert = _certificate(_name(name), subject, key, authority, is_authority=False)
    pem = serialization.Encoding.PEM
    found = {each: directory / f"{each}.pem" for each in ("ca", "cert", "key")}
    found["ca"].write_bytes(ca.public_bytes(pem))
    found["cert"].write_bytes(cert.public_bytes(pem))
    found["key"].write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return found


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    authority: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    return builder.sign(authority, hashes.SHA256())

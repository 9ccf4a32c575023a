"""Certificates for one test: of a host that is its own authority, or of an authority."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def self_signed(file: Path, host: str, subject: str = "") -> Path:
    """Write a certificate of a host with its key into one PEM file, and return the file.

    Args:
        file: To be written.
        host: A name or an address, which clients compare.
        subject: Common name; empty is the host.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(subject or host)
    made = _certificate(name, name, key, key, is_authority=True, host=host)
    file.write_bytes(made.public_bytes(serialization.Encoding.PEM) + _pem(key))
    return file


def of_authority(directory: Path, name: str = "cluster") -> dict[str, Path]:
    """Make an authority and one certificate of it; return ca, cert and key as PEM files."""
    directory.mkdir(parents=True)
    authority, issuer = ec.generate_private_key(ec.SECP256R1()), _name(f"{name} authority")
    ca = _certificate(issuer, issuer, authority, authority, is_authority=True)
    key = ec.generate_private_key(ec.SECP256R1())
    cert = _certificate(_name(name), issuer, key, authority, is_authority=False)
    found = {each: directory / f"{each}.pem" for each in ("ca", "cert", "key")}
    found["ca"].write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    found["cert"].write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    found["key"].write_bytes(_pem(key))
    return found


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    authority: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool,
    host: str = "",
) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if host:
        try:
            found: x509.GeneralName = x509.IPAddress(ip_address(host))
        except ValueError:
            found = x509.DNSName(host)
        builder = builder.add_extension(x509.SubjectAlternativeName([found]), critical=False)
    return builder.sign(authority, hashes.SHA256())

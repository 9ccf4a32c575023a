"""A certificate authority for one test, and a server's certificate signed by it."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """Files of a test's own authority."""

    authority: Path
    """The authority's certificate, PEM: what a client has to trust."""
    certificate: Path
    key: Path
    wallet: Path
    """Directory with an `ewallet.pem` that makes python-oracledb trust the authority."""

    @property
    def tls(self) -> tuple[Path, Path]:
        return self.certificate, self.key


def create(directory: Path, *, name: str = "127.0.0.1") -> Certificates:
    """Make an authority and a certificate for a server on this host, valid for two days.

    Args:
        name: Common name of the server's certificate, which clients compare with their host.
    """
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _certificate("unloader test authority", authority_key, None)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _certificate(name, key, (authority, authority_key))
    wallet = directory / "wallet"
    wallet.mkdir(parents=True)
    files = Certificates(
        authority=directory / "authority.pem",
        certificate=directory / "server.pem",
        key=directory / "server.key",
        wallet=wallet,
    )
    pem = authority.public_bytes(serialization.Encoding.PEM)
    files.authority.write_bytes(pem)
    (wallet / "ewallet.pem").write_bytes(pem)
    files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None,
) -> x509.Certificate:
    """Return a certificate; without an issuer it is an authority's own."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer[0].subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if issuer is None:
        builder = builder.add_extension(_signing_usage(), critical=True)
        return builder.sign(key, hashes.SHA256())
    names: list[x509.GeneralName] = [x509.DNSName("localhost")]
    names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    authority_key = issuer[1].public_key()
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key)
    return (
        builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(identifier, critical=False)
        .sign(issuer[1], hashes.SHA256())
    )


def _signing_usage() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )

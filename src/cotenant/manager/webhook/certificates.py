"""A certificate authority of our own and the serving certificate that it signs, both made here.

Replacing either drops no request. A serving certificate is replaced well before it ends. A new authority is first only
published beside the old one; when everybody who asks knows it, the next serving certificate is signed by it.
"""

import dataclasses
import datetime
import ipaddress

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cotenant.units.errors import CotenantError

AUTHORITY_LIVES = 12
"""An authority lives as long as so many serving certificates."""
AGE_RATIO = 2 / 3
"""After this share of its life a certificate is replaced."""
BACKDATED_SECONDS = 300.0
"""A certificate holds from a little before it was made: the API server's clock may be behind."""

Key = ec.EllipticCurvePrivateKey


class BadMaterial(CotenantError):
    """What is stored is not what was made here."""


@dataclasses.dataclass(frozen=True, slots=True)
class Material:
    """What the replicas share, in PEM."""

    authorities: bytes
    """Certificates of the authorities, the newest first."""
    authority_key: bytes
    """The newest authority's key."""
    certificate: bytes
    key: bytes

    def issued(self) -> "Issued":
        """Return what is in it.

        :raises BadMaterial: if a part cannot be read, or a key is not the certificate's.
        """
        try:
            authorities = x509.load_pem_x509_certificates(self.authorities)
            certificate = x509.load_pem_x509_certificate(self.certificate)
            authority_key = serialization.load_pem_private_key(self.authority_key, None)
            key = serialization.load_pem_private_key(self.key, None)
        except (ValueError, TypeError) as error:
            raise BadMaterial(f"certificates: {error}") from None
        pairs = ((authority_key, authorities[0]), (key, certificate))
        if not isinstance(authority_key, Key) or any(one.public_key() != of.public_key() for one, of in pairs):
            raise BadMaterial("certificates: a key does not belong to its certificate")
        return Issued(tuple(authorities), authority_key, certificate)


@dataclasses.dataclass(frozen=True, slots=True)
class Issued:
    """The same, read."""

    authorities: tuple[x509.Certificate, ...]
    authority_key: Key
    certificate: x509.Certificate

    @property
    def expires_at(self) -> float:
        """When the serving certificate ends, in seconds since the epoch."""
        return self.certificate.not_valid_after_utc.timestamp()

    def signed_by_newest(self) -> bool:
        """Return whether the newest authority signed the serving certificate."""
        try:
            self.certificate.verify_directly_issued_by(self.authorities[0])
        except (ValueError, TypeError, InvalidSignature):
            return False
        return True


def renewed(
    material: Material | None, names: tuple[str, ...], now: float, life_seconds: float, *, published: bool
) -> Material | None:
    """Return what is to be shared from now on, or None where that is what there is.

    ``published``: whether everybody who asks knows all the authorities that there are.
    """
    try:
        held = material.issued() if material is not None else None
    except BadMaterial:
        held = None
    if material is None or held is None:
        authority, key = _authority(now, life_seconds)
        return _issue((authority,), key, names, now, life_seconds)
    if _aged(held.authorities[0], now):
        authority, key = _authority(now, life_seconds)
        kept = [old for old in held.authorities if old.not_valid_after_utc.timestamp() > now]
        return dataclasses.replace(material, authorities=_pem(authority, *kept), authority_key=_key_pem(key))
    current = held.signed_by_newest() and _names_of(held.certificate) == set(names)
    if current and not _aged(held.certificate, now):
        return None
    if not published and held.expires_at > now:
        return None
    kept_authorities = tuple(one for one in held.authorities if one.not_valid_after_utc.timestamp() > now)
    return _issue(kept_authorities, held.authority_key, names, now, life_seconds)


def _authority(now: float, life_seconds: float) -> tuple[x509.Certificate, Key]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"cotenant webhook authority {int(now)}")])
    builder = _builder(name, name, key, now, life_seconds * AUTHORITY_LIVES)
    usage = _usage(key_cert_sign=True, crl_sign=True)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(usage, critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    return builder.sign(key, hashes.SHA256()), key


def _issue(
    authorities: tuple[x509.Certificate, ...],
    authority_key: Key,
    names: tuple[str, ...],
    now: float,
    life_seconds: float,
) -> Material:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    issuer = authorities[0]
    builder = _builder(subject, issuer.subject, key, now, life_seconds)
    builder = builder.add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(digital_signature=True), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False
    )
    certificate = builder.sign(authority_key, hashes.SHA256())
    return Material(_pem(*authorities), _key_pem(authority_key), _pem(certificate), _key_pem(key))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: Key, now: float, life_seconds: float
) -> x509.CertificateBuilder:
    start, end = (
        datetime.datetime.fromtimestamp(int(moment), datetime.UTC)
        for moment in (now - BACKDATED_SECONDS, now + life_seconds)
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
    )


def _usage(**given: bool) -> x509.KeyUsage:
    names = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
        "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    return x509.KeyUsage(**{name: given.get(name, False) for name in names})


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _names_of(certificate: x509.Certificate) -> set[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {*found.get_values_for_type(x509.DNSName), *map(str, found.get_values_for_type(x509.IPAddress))}


def _aged(certificate: x509.Certificate, now: float) -> bool:
    start = certificate.not_valid_before_utc.timestamp() + BACKDATED_SECONDS
    end = certificate.not_valid_after_utc.timestamp()
    return now >= start + (end - start) * AGE_RATIO


def _pem(*certificates: x509.Certificate) -> bytes:
    return b"".join(one.public_bytes(serialization.Encoding.PEM) for one in certificates)


def _key_pem(key: Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )

"""Certificates: what is made, when it is replaced, and that every step is trusted by who knows the step before."""

import dataclasses
import ssl
import time

import pytest
from cryptography import x509

from cotenant.manager.webhook import certificates, credentials
from cotenant.manager.webhook.certificates import Material

NAMES = ("cotenant-webhook.cotenant-system.svc", "127.0.0.1")
DAY = 86_400.0
LIFE = 30 * DAY
NOW = 1_800_000_000.0


def made(now: float = NOW) -> Material:
    found = certificates.renewed(None, NAMES, now, LIFE, published=True)
    assert found is not None
    return found


def renewed(
    material: Material | None, days: float, *, published: bool = True, names: tuple[str, ...] = NAMES
) -> Material | None:
    return certificates.renewed(material, names, NOW + days * DAY, LIFE, published=published)


def handshake(material: Material, trusted: bytes, name: str = NAMES[0]) -> None:
    """Shake hands in memory; raises SSLError where a client that trusts these authorities would."""
    serving, asking = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cadata=trusted.decode())
    credentials.load(serving, material)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    client = asking.wrap_bio(to_client, to_server, server_hostname=name)
    done = set()
    for _ in range(10):
        for side in (client, server):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                continue
    assert len(done) == 2


@pytest.mark.parametrize("name", NAMES)
def test_clients_trust_it_for_its_names(name: str) -> None:
    now = time.time()
    material = certificates.renewed(None, NAMES, now, LIFE, published=True)
    assert material is not None
    handshake(material, material.authorities, name)


def test_clients_trust_it_for_no_other_name_and_by_no_other_authority() -> None:
    now = time.time()
    one, other = (certificates.renewed(None, NAMES, now, LIFE, published=True) for _ in range(2))
    assert one is not None
    assert other is not None
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(one, one.authorities, "other.svc")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(one, other.authorities)


def test_a_serving_certificate_lasts_two_thirds_of_its_life() -> None:
    material = made()
    assert renewed(material, 19.9) is None
    new = renewed(material, 20.1)
    assert new is not None
    assert (new.authorities, new.authority_key) == (material.authorities, material.authority_key)
    assert new.certificate != material.certificate
    assert renewed(new, 20.2) is None


def test_other_names_need_another_certificate() -> None:
    material = made()
    new = renewed(material, 0, names=("else.svc",))
    assert new is not None
    names = x509.load_pem_x509_certificate(new.certificate).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert names.value.get_values_for_type(x509.DNSName) == ["else.svc"]


def test_a_new_authority_is_published_before_it_signs() -> None:
    material, days = made(), 0.0
    while days < 239:  # an authority lives 360 days, and is replaced after 240
        days += 1
        material = renewed(material, days) or material
        assert len(x509.load_pem_x509_certificates(material.authorities)) == 1
    with_two = renewed(material, 241)
    assert with_two is not None
    assert with_two.certificate == material.certificate
    old, new = (
        x509.load_pem_x509_certificates(material.authorities)[0],
        x509.load_pem_x509_certificates(with_two.authorities),
    )
    assert new[1] == old
    assert renewed(with_two, 241, published=False) is None
    signed = renewed(with_two, 241)
    assert signed is not None
    assert signed.issued().signed_by_newest()
    assert signed.authorities == with_two.authorities
    assert renewed(signed, 242) is None


def test_years_go_by_without_a_day_on_which_nobody_is_trusted() -> None:
    """Clients know the authorities of the day before; the certificate of today must hold for them."""
    material = made()
    known = material.authorities
    for day in range(1, 800):
        new = renewed(material, day)
        issued = (new or material).issued()
        assert issued.expires_at > NOW + (day + 1) * DAY
        signers = x509.load_pem_x509_certificates(known)
        assert any(issued.certificate.issuer == signer.subject for signer in signers), day
        assert all(signer.not_valid_after_utc.timestamp() > NOW + day * DAY for signer in issued.authorities[:1])
        assert len(issued.authorities) <= 2
        material = new or material
        known = material.authorities


def test_a_certificate_that_has_ended_waits_for_nobody() -> None:
    assert renewed(made(), 31, published=False) is not None


@pytest.mark.parametrize("field", ["authorities", "authority_key", "certificate", "key"])
def test_what_cannot_be_read_is_made_anew(field: str) -> None:
    broken = dataclasses.replace(made(), **{field: b"no PEM"})
    with pytest.raises(certificates.BadMaterial):
        broken.issued()
    assert renewed(broken, 0) is not None
    swapped = dataclasses.replace(made(), **{field: getattr(made(), field)})
    with pytest.raises(certificates.BadMaterial):
        swapped.issued()

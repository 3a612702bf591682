"""Spellings of an origin and of an address by which somebody may hope to reach another host than the one that is read."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest

from tasc_collector.contracts.origin_grammar import MisspelledOrigin, read_origin
from tasc_collector.errors import InputError
from tasc_collector.transport.addresses import parse_address, private_refusal, public_refusal, without_refused
from tasc_collector.transport.origins import HostKind, parse_origin, request_path_ok, route_prefix_ok

ACCEPTED = {
    "https://api.example.com": HostKind.NAME,
    "https://api.example.com:8443": HostKind.NAME,
    "https://api.example.com:1": HostKind.NAME,
    "https://api.example.com:65535": HostKind.NAME,
    "https://3com.example": HostKind.NAME,
    "https://1.2.3.4.example": HostKind.NAME,
    "https://example.1a": HostKind.NAME,
    "https://" + "a" * 63 + ".example": HostKind.NAME,
    "https://xn--bcher-kva.example": HostKind.NAME,
    "https://xn--strae-oqa.example": HostKind.NAME,
    "https://xn--e1afmkfd.xn--p1ai": HostKind.NAME,
    "https://xn--fiqs8s.example": HostKind.NAME,
    "https://xn--vek160nc2a.example": HostKind.NAME,
    "https://a.xn--wgbh1c": HostKind.NAME,
    "https://xn--wgbh1c": None,
    "https://93.184.216.34": HostKind.ADDRESS,
    "https://93.184.216.34:8443": HostKind.ADDRESS,
    "https://[2606:4700:4700::1111]": HostKind.ADDRESS,
    "https://[2606:4700:4700::1111]:8443": HostKind.ADDRESS,
    "http://127.0.0.1:8000": HostKind.LOOPBACK,
    "http://[::1]:8000": HostKind.LOOPBACK,
}
"""Origin to what it is; None where it is refused all the same."""

REFUSED = {
    "user information": "user@a.example user:pw@a.example @a.example a.example@b.example a.example:80@b.example a.example#@b.example",
    "more than an origin": "a.example/ a.example// a.example/v1 a.example? a.example# a.example?x a.example;x",
    "other separators": "a.example\\ a.example\\@b.example \\\\a.example /a.example //a.example a.example,b.example a.example|b",
    "percent sign": "%61.example a%2eexample a.example%00 a.example%0d%0a a.example%2fb a.example%",
    "capitals": "A.example a.EXAMPLE XN--BCHER-KVA.example [2606:4700:4700::111A]",
    "dots": "a.example. .a.example a..example . .. a. 93.184.216.34. 93..184.216.34",
    "labels": "example a_b.example -a.example a-.example *.example " + "a" * 64 + ".example",
    "length": ".".join(["a" * 60] * 5),
    "port": "a.example:0 a.example:443 a.example:65536 a.example:0443 a.example:+444 a.example: a.example:44a a.example::444",
    "port again": "a.example:444:444 a.example:-1 a.example:4_4 a.example:99999999999 a.example:\u0664\u0664\u0664",
    "short address": "127.1 93.184.216 93.184 1 0 a.1 a.b.09 a.0x a.0x1f",
    "octal address": "0177.0.0.1 017700000001 93.184.216.034 093.184.216.34 0251.0376.0251.0376",
    "hexadecimal address": "0x7f.0.0.1 0x7f000001 93.184.0xd8.34 0xA9FEA9FE",
    "whole address": "2130706433 3232235521 7147006462",
    "no address": "256.1.1.1 1.2.3.4.5 93.184.216.34a.1 1.2.3.-4 1.2.3.+4",
    "digits of other scripts": "\u2460\u2461\u2466.0.0.1 \uff11\uff12\uff17.0.0.1 1\u06e27.0.0.1 \u0967.1.1.1",
    "dots of other scripts": "a\u3002example a\uff0eexample a\uff61example a.example\u2024b a.example\u2025",
    "letters of other scripts": "b\u00fccher.example \u24d4\u24e7.example a\u00ad.example a\u200b.example a\u200d.example \ufb01.example",
    "bracket": "[2606:4700:4700::1111 2606:4700:4700::1111 [2606:4700:4700::1111]x [v1.a] [] [93.184.216.34] [[2606::1]]",
    "spelling of IPv6": "[2606:4700:4700:0:0:0:0:1111] [2606:4700:4700::01111] [2606:4700:4700:0::1111] [2606:4700:4700::0:1111]",
    "zone": "[2606:4700:4700::1111%eth0] [2606:4700:4700::1111%25eth0] [fe80::1%1] [::1%lo]",
    "IPv4 inside IPv6": "[::ffff:93.184.216.34] [::ffff:5db8:d822] [::93.184.216.34] [64:ff9b::5db8:d822] [2002:5db8:d822::1]",
    "not public": "10.0.0.1 100.64.0.1 127.0.0.1 127.0.0.1:8443 169.254.169.254 172.16.0.1 192.168.0.1 0.0.0.0 255.255.255.255",
    "not public either": "192.0.0.192 192.0.2.1 192.88.99.1 198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1 240.0.0.1 168.63.129.16",
    "not public IPv6": "[::] [::1] [fe80::1] [fec0::1] [fd00::1] [ff02::1] [2001:db8::1] [3ffe::1] [3fff::1] [5f00::1] [4000::1]",
    "this host by name": "localhost localhost:8443 a.localhost a.b.localhost",
    "no label behind the prefix": "xn--.example xn---.example xn--a.example xn--abc-.example xn--zz.example xn--a-.example",
    "a label of unseen characters or hyphens": "xn--ab-x0b.example xn--ab-372n.example xn--x-hpu.example xn--ab---epa.example",
    "a label that is not permitted": "xn--a-ecp.example xn--zn7c.example xn--19g.example xn--ls8h.example xn--0ca24w.example",
}
"""Why, and hosts for which https is refused."""

OTHERS = (
    *("HTTPS://a.example", "https:a.example", "https:/a.example", "https:///a.example", "//a.example", "a.example", ""),
    *(
        "ftp://a.example",
        "ws://a.example",
        "unix:///a",
        "javascript:alert(1)",
        "https//a.example",
        "https ://a.example",
    ),
    *(
        " https://a.example",
        "https://a.example ",
        "https://a.example\n",
        "https://a.example\r\nX: y",
        "https://a.\texample",
    ),
    *("http://a.example", "http://localhost:8000", "http://127.0.0.1", "http://127.0.0.1:80", "http://127.0.0.1:08000"),
    *("http://127.0.0.2:8000", "http://127.1:8000", "http://0.0.0.0:8000", "http://[::]:8000", "http://10.0.0.1:8000"),
    *(
        "http://[::ffff:127.0.0.1]:8000",
        "http://[0:0:0:0:0:0:0:1]:8000",
        "http://[::1%lo]:8000",
        "http://127.0.0.1:8000/",
    ),
    *(
        "http://127.0.0.1:8000@a.example",
        "http://a@127.0.0.1:8000",
        "http://127.0.0.1.:8000",
        "http://93.184.216.34:8000",
    ),
)


def kind_of(origin: str) -> HostKind | None:
    try:
        return parse_origin(origin).kind
    except InputError as refusal:
        assert refusal.way_out and "a.example" not in str(refusal)
        return None


def test_a_canonical_origin_is_what_it_says() -> None:
    assert {origin: kind_of(origin) for origin in ACCEPTED} == ACCEPTED
    assert all(parse_origin(origin).text == origin for origin, kind in ACCEPTED.items() if kind is not None)


@pytest.mark.parametrize("why", REFUSED)
def test_another_spelling_of_a_host_is_refused(why: str) -> None:
    hosts = REFUSED[why].split(" ")
    assert [host for host in hosts if kind_of(f"https://{host}") is not None] == []


def test_another_spelling_of_the_rest_is_refused() -> None:
    assert [origin for origin in OTHERS if kind_of(origin) is not None] == []


INNER = ("127.0.0.1", "10.0.0.1", "169.254.169.254", "192.168.1.1", "0.0.0.0", "93.184.216.34")  # noqa: S104 - refused


def carriers(inner: int) -> dict[str, int]:
    """IPv6 addresses that carry an IPv4 address in one of the known ways (RFC 4291, 2765, 6052, 8215, 3056, 4380, 5214)."""
    teredo = (0x20010000 << 96) | (0x5DB8D822 << 64) | (inner ^ 0xFFFFFFFF)
    return {
        "mapped": (0xFFFF << 32) | inner,
        "compatible": inner,
        "translated": (0xFFFF << 48) | inner,
        "nat64": (0x64FF9B << 96) | inner,
        "nat64 of one's own": (0x64FF9B0001 << 80) | inner,
        "6to4": (0x2002 << 112) | (inner << 80) | 1,
        "teredo client": teredo,
        "teredo server": (0x20010000 << 96) | (inner << 64) | 0xA2473F57,
        "isatap": (0x260647004700 << 80) | (0x5EFE << 32) | inner,
        "isatap, global": (0x260647004700 << 80) | (0x02005EFE << 32) | inner,
        "isatap, link-local": (0xFE80 << 112) | (0x5EFE << 32) | inner,
    }


def test_what_a_private_network_may_hold_is_not_reached_all_the_same() -> None:
    """Metadata services inside the private blocks, and private prefixes in front of an embedded IPv4 address."""
    networks = [ip_network(cidr) for cidr in ("100.64.0.0/10", "fc00::/7")]
    refused = {
        "100.100.100.200": "cloud-metadata",
        "fd00:ec2::254": "cloud-metadata",
        "fd00:ec2::23": "cloud-metadata",
        "fd20:ce::254": "cloud-metadata",
        "fd00:42::42": "cloud-metadata",
        "fd00:c1::a9fe:a9fe": "cloud-metadata",
        "fd12::5efe:7f00:1": "isatap",
        "fd12::200:5efe:a9fe:a9fe": "isatap",
    }
    assert {text: private_refusal(ip_address(text), networks) for text in refused} == refused
    taken = ("100.100.100.199", "100.100.100.201", "fd00:42::41", "fd00:42::43", "fd12::1")
    assert [private_refusal(ip_address(text), networks) for text in taken] == [None] * 5


def test_a_private_network_is_listed_without_the_metadata_services_in_it() -> None:
    assert without_refused(ip_network("10.0.0.0/8")) == (ip_network("10.0.0.0/8"),)
    around = without_refused(ip_network("100.100.100.192/28"))
    assert [str(piece) for piece in around] == [
        *("100.100.100.192/29", "100.100.100.201/32", "100.100.100.202/31", "100.100.100.204/30")
    ]
    every = without_refused(ip_network("fc00::/7"))
    held = ("fd00:ec2::254", "fd20:ce::254", "fd00:42::42", "fd00:c1::1")
    assert not any(ip_address(text) in piece for text in held for piece in every)
    assert sum(piece.num_addresses for piece in every) == 2**121 - 2 * 2**96 - 2


@pytest.mark.parametrize("text", ["::ffff:8.8.8.8", "::ffff:808:808"])
def test_a_mapped_address_has_no_canonical_spelling(text: str) -> None:
    """Python spells it one way up to 3.12 and the other way from 3.13 on."""
    assert parse_address(text) is None
    with pytest.raises(MisspelledOrigin):
        read_origin(f"https://[{text}]")


@pytest.mark.parametrize("inner", INNER)
def test_no_address_that_carries_another_is_reached(inner: str) -> None:
    for name, value in carriers(int(IPv4Address(inner))).items():
        address = IPv6Address(value)
        assert public_refusal(address) is not None, name
        assert private_refusal(address, [ip_network("10.0.0.0/8"), ip_network("fd00::/8")]) is not None, name


@pytest.mark.parametrize(
    "text",
    [
        *("127.1", "0177.0.0.1", "0x7f.0.0.1", "2130706433", "127.0.0.1.", "127.0.0.01", "127.0.0.1%lo", " 127.0.0.1"),
        *(
            "127.0.0.1\n",
            "\u0661.1.1.1",
            "\uff11.1.1.1",
            "1.1.1.1/32",
            "+1.1.1.1",
            "1_0.1.1.1",
            "[::1]",
            "::1%lo",
            "::FF",
        ),
        *(
            "0:0:0:0:0:0:0:1",
            "::0001",
            "2606:4700:4700:0::1111",
            "::ffff:1.2.3.4 ",
            "",
            ".",
            ":",
            ":::",
            "1::2::3",
            "g::1",
        ),
    ],
)
def test_a_resolver_that_answers_in_another_spelling_is_not_believed(text: str) -> None:
    assert parse_address(text) is None


@pytest.mark.parametrize(
    ("path", "as_prefix", "as_request"),
    [
        ("/", True, True),
        ("/v1", True, True),
        ("/v1/chat/completions", True, True),
        ("/v1/", False, True),
        ("/.well-known/a~b_c-d.e", True, True),
        ("/...", True, True),
        *(
            (path, False, False)
            for path in (
                *(
                    "",
                    "v1",
                    "//",
                    "//v1",
                    "/v1//",
                    "/v1//a",
                    "/.",
                    "/..",
                    "/v1/.",
                    "/v1/..",
                    "/v1/../a",
                    "/./v1",
                    "/v1/%2e%2e",
                ),
                *(
                    "/v1%2fa",
                    "/v1\\a",
                    "/v1?x",
                    "/v1#x",
                    "/v1;x",
                    "/v1 a",
                    "/v1\n",
                    "/v1\r\nX: y",
                    "/v1\x00",
                    "/\u00e9",
                ),
                *("/v1:a", "/@a", "*", "http://a.example/", "/v1\u2215a", "/\uff0e\uff0e/a", "/" + "a" * 10_000),
            )
        ),
    ],
)
def test_a_path_is_plain_segments(path: str, as_prefix: bool, as_request: bool) -> None:
    assert (route_prefix_ok(path), request_path_ok(path)) == (as_prefix, as_request)

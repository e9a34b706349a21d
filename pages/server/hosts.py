"""Which hosts the dashboard answers to.

A page of another site can have its own name point to this machine (DNS rebinding): the browser then takes this server for
that site. So only requests that name a known host are answered, web sockets and plain requests alike, and what a page sends
must come from a page of this server.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from streamlit import config

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_EVERYWHERE = ("", "0.0.0.0", "::")
_HOST = re.compile(r"[\w.:\[\]-]{1,255}", re.ASCII)


@dataclass(frozen=True)
class Hosts:
    """The names, and whether any bare address will do as well: no site can have one for its name."""

    names: frozenset[str]
    addresses: bool = False

    def refusal(self, hosts: list[str], origins: list[str]) -> str:
        """Why a request with these headers is not answered; nothing if it is."""
        if len(hosts) != 1 or not self._known(hosts[0]):
            return "This host is not allowed; the setting server.allowedHosts lists the allowed ones.\n"
        if any(_name(origin) is None or urlsplit(origin).netloc != hosts[0] for origin in origins):
            return "Requests from pages of other sites are not accepted.\n"
        return ""

    def _known(self, host: str) -> bool:
        name = _name(f"//{host}") if _HOST.fullmatch(host) else None
        return name is not None and (name in self.names or "*" in self.names or (self.addresses and _is_address(name)))


def configured() -> Hosts:
    """Those of `server.allowedHosts` and `server.address`. Streamlit's own check of web sockets is set to the same."""
    address = (config.get_option("server.address") or "").lower()
    names = {name.strip().strip("[]").lower().rstrip(".") for name in config.get_option("server.allowedHosts")} - {""}
    if address in _EVERYWHERE:
        found = Hosts(frozenset({*LOOPBACK, *names}), addresses=True)
        config.set_option("server.allowedHosts", ["*"])  # it knows no "any address", and leaves that to this check
    else:
        found = Hosts(frozenset({*LOOPBACK, *names, address}))
        config.set_option("server.allowedHosts", sorted(found.names))
    return found


def open_to_others() -> bool:
    """Whether other machines can reach the pages: the server listens beyond loopback, or answers to a name of elsewhere."""
    names = [config.get_option("server.address"), *config.get_option("server.allowedHosts")]
    return any(name not in LOOPBACK for name in names)


def _name(address: str) -> str | None:
    """The host in an address that has nothing but a host, and perhaps a scheme and a port."""
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:
        return None
    if parts.username is not None or parts.password is not None or parts.path or parts.query or parts.fragment:
        return None
    return parts.hostname.lower().rstrip(".") if parts.hostname else None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

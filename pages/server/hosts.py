"""The host names that the dashboard accepts.

Another site can point its own name to this machine (DNS rebinding), so that a browser takes this server for that site.
Therefore requests, including those for web sockets, are accepted only with a known host name, and requests from web pages only
if the page is from this server.
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
    """The accepted names. With `addresses`, any IP address is accepted too: DNS rebinding needs a name."""

    names: frozenset[str]
    addresses: bool = False

    def refusal(self, hosts: list[str], origins: list[str]) -> str:
        """The reason to refuse a request with these headers; an empty string if it is accepted."""
        if len(hosts) != 1 or not self._known(hosts[0]):
            return "This host is not allowed; the setting server.allowedHosts lists the allowed ones.\n"
        if any(_name(origin) is None or urlsplit(origin).netloc != hosts[0] for origin in origins):
            return "Requests from pages of other sites are not accepted.\n"
        return ""

    def _known(self, host: str) -> bool:
        name = _name(f"//{host}") if _HOST.fullmatch(host) else None
        return name is not None and (name in self.names or "*" in self.names or (self.addresses and _is_address(name)))


def configured() -> Hosts:
    """The hosts in `server.allowedHosts` and `server.address`. Streamlit's own check of web sockets is set to the same."""
    address = (config.get_option("server.address") or "").lower()
    names = {name.strip().strip("[]").lower().rstrip(".") for name in config.get_option("server.allowedHosts")} - {""}
    if address in _EVERYWHERE:
        found = Hosts(frozenset({*LOOPBACK, *names}), addresses=True)
        config.set_option("server.allowedHosts", ["*"])  # Streamlit has no setting for any IP address; this check does it
    else:
        found = Hosts(frozenset({*LOOPBACK, *names, address}))
        config.set_option("server.allowedHosts", sorted(found.names))
    return found


def open_to_others() -> bool:
    """Whether other machines can reach the pages: the server listens beyond loopback, or accepts another host name."""
    names = [config.get_option("server.address"), *config.get_option("server.allowedHosts")]
    return any(name not in LOOPBACK for name in names)


def _name(address: str) -> str | None:
    """The host in a URL that consists of a host and optionally a scheme and a port; None for any other URL."""
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

"""The network of a test bed: a namespace for each host and one for the control machine, joined by a switch for each rack and a
core switch.

The switches are bridges in a namespace of their own, so the machine's own network gets no interface, address or route, and its
firewall does not see the packets. All addresses are in 10.77.0.0/16. Every machine knows the hardware address of every other
one: a host that is cut is silent to all, and nobody is told by ARP, after some seconds, that there is no route to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ppa_core.process.bed_names import CONTROL, SWITCHES, bed_namespace
from ppa_core.process.namespaces import Namespace

MOST_HOSTS = 250
CONTROL_ADDRESS = "10.77.0.1"

_CORE = "core"
_BRIDGE = "type bridge forward_delay 0 mcast_snooping 0"
"""A link that is raised forwards at once."""


class BedNetwork:
    """`racks` are the hosts of each rack. Interfaces in the switches' namespace have the names of their hosts and racks."""

    def __init__(self, bed: str, racks: Mapping[str, Sequence[str]]) -> None:
        self.racks = {rack: tuple(hosts) for rack, hosts in racks.items()}
        self.rack_of = {host: rack for rack, hosts in self.racks.items() for host in hosts}
        self.control, self.switches = bed_namespace(bed, CONTROL), bed_namespace(bed, SWITCHES)
        self.hosts = {host: bed_namespace(bed, host) for host in self.rack_of}
        self.addresses = {
            host: f"10.77.{i}.{j}" for i, hosts in enumerate(self.racks.values(), 1) for j, host in enumerate(hosts, 1)
        }
        self._down: set[str] = set()

    @property
    def namespaces(self) -> tuple[Namespace, ...]:
        return (self.switches, self.control, *self.hosts.values())

    @property
    def cut(self) -> frozenset[str]:
        """The hosts and racks whose link is down."""
        return frozenset(self._down)

    def create(self) -> None:
        for namespace in self.namespaces:
            namespace.create()
        self.switches.set_up(*self._switching())
        addresses = self.addresses | {CONTROL: CONTROL_ADDRESS}
        for machine, namespace in (self.hosts | {CONTROL: self.control}).items():
            others = [address for address in addresses.values() if address != addresses[machine]]
            namespace.set_up(
                "link set lo up",
                f"address add {addresses[machine]}/16 dev eth0",
                "link set eth0 up",
                *(f"neighbour add {address} lladdr {_hardware(address)} dev eth0 nud permanent" for address in others),
            )

    def set_link(self, name: str, up: bool) -> None:
        """Raise or take down the link of a host to its rack's switch, or of a rack's switch to the core switch."""
        self.switches.set_up(f"link set {name if name in self.hosts else _uplink(name)} {'up' if up else 'down'}")
        (self._down.discard if up else self._down.add)(name)

    def _switching(self) -> list[str]:
        bridges = [_CORE, *self.racks]
        ports = {CONTROL: _CORE} | self.rack_of
        addresses = self.addresses | {CONTROL: CONTROL_ADDRESS}
        namespaces = self.hosts | {CONTROL: self.control}
        joined = [(_uplink(rack), rack) for rack in self.racks] + [(f"{_CORE}-{rack}", _CORE) for rack in self.racks]
        return [
            *(f"link add {bridge} {_BRIDGE}" for bridge in bridges),
            *(f"link add {_uplink(rack)} type veth peer name {_CORE}-{rack}" for rack in self.racks),
            *(
                f"link add {machine} type veth peer name eth0 address {_hardware(addresses[machine])} "
                f"netns {namespaces[machine].name}"
                for machine in ports
            ),
            *(f"link set {port} master {bridge}" for port, bridge in (*ports.items(), *joined)),
            *(f"link set {link} up" for link in (*bridges, *ports, *(port for port, _ in joined))),
        ]


def _uplink(rack: str) -> str:
    return f"{rack}-up"


def _hardware(address: str) -> str:
    """A locally administered hardware address that contains the IP address."""
    return ":".join(["02", "00", *(f"{int(part):02x}" for part in address.split("."))])

"""Networks: the machine's own services, addresses nobody may reach, and sockets that go round the network.

Nothing here sends a packet to an address off the machine, not even where the sandbox fails: for those addresses a
datagram socket is *connected*, which asks the kernel for a route and sends nothing.
"""

import os
import socket

from hostile import any_of, blocked, escaped, judged, main, opens, probe, says

WAIT_SECONDS = 2
PROXY = ("127.0.0.1", 3128)


def hears_marker(family, kind, address, parameters):
    with socket.socket(family, kind) as client:
        client.settimeout(WAIT_SECONDS)
        try:
            client.connect(address)
            if kind == socket.SOCK_DGRAM:
                client.send(b"?")
            said = client.recv(256)
        except OSError as error:
            return blocked(f"the connection ended with {says(error.errno)}", error)
    return judged(parameters["marker"].encode() in said, "the canary answered")


@probe
def loopback_of_the_host(parameters):
    return hears_marker(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", parameters["port"]), parameters)


@probe
def unspecified_address(parameters):
    return hears_marker(socket.AF_INET, socket.SOCK_STREAM, ("0.0.0.0", parameters["port"]), parameters)


@probe
def mapped_address(parameters):
    return hears_marker(socket.AF_INET6, socket.SOCK_STREAM, ("::ffff:127.0.0.1", parameters["port"]), parameters)


@probe
def datagram_to_loopback(parameters):
    return hears_marker(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", parameters["udp_port"]), parameters)


@probe
def api_of_the_gateway(parameters):
    host, port = parameters["api"].rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), WAIT_SECONDS).close()
    except OSError as error:
        return blocked(f"connecting answered {says(error.errno)}", error)
    return escaped("the gateway's own door was reached")


@probe
def unix_socket_by_path(parameters):
    return hears_marker(socket.AF_UNIX, socket.SOCK_STREAM, parameters["socket"], parameters)


@probe
def unix_socket_abstract(parameters):
    return hears_marker(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + parameters["abstract"], parameters)


# ------------------------------------------------------------------------------------------------ forbidden addresses


def has_route(address):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as client:
        try:
            client.connect((address, 80))
        except OSError as error:
            return blocked(f"the route answered {says(error.errno)}", address)
    return escaped("there is a route", address)


@probe
def route_to_metadata(parameters):
    return any_of(has_route(address) for address in ("169.254.169.254", "100.100.100.200", "fd00:ec2::254"))


@probe
def route_to_private_ranges(parameters):
    return any_of(has_route(address) for address in ("10.0.0.1", "172.16.0.1", "192.168.0.1", "fc00::1", "100.64.0.1"))


@probe
def route_to_the_internet(parameters):
    return any_of(has_route(address) for address in ("192.0.2.1", "198.51.100.1", "2001:db8::1"))


@probe
def route_to_link_local(parameters):
    return any_of(has_route(address) for address in ("169.254.1.1", "224.0.0.251", "255.255.255.255"))


# ----------------------------------------------------------------------------------------------------- round the proxy


def asks_proxy(request):
    """What the egress proxy answers; a tool with a network permission finds it on its own loopback."""
    try:
        with socket.create_connection(PROXY, WAIT_SECONDS) as client:
            client.sendall(request)
            said = client.recv(256)
    except OSError as error:
        return blocked(f"the proxy ended with {says(error.errno)}", error)
    return judged(said.startswith((b"HTTP/1.1 2", b"HTTP/1.0 2", b"\x05\x00\x05\x00")), "the proxy answered", said[:60])


def connects_by_proxy(target):
    return asks_proxy(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())


@probe
def proxy_to_undeclared_name(parameters):
    return connects_by_proxy("undeclared.invalid:443")


@probe
def proxy_to_undeclared_port(parameters):
    return connects_by_proxy("declared.invalid:25")


@probe
def proxy_to_loopback(parameters):
    return any_of(connects_by_proxy(f"{host}:{parameters['port']}") for host in
                  ("127.0.0.1", "localhost", "0.0.0.0", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1"))


@probe
def proxy_to_metadata(parameters):
    return any_of(connects_by_proxy(target) for target in ("169.254.169.254:80", "[fd00:ec2::254]:80"))


@probe
def proxy_plain_to_loopback(parameters):
    port = parameters["port"]
    return asks_proxy(f"GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: declared.invalid\r\n\r\n".encode())


@probe
def proxy_socks_to_loopback(parameters):
    address = bytes([5, 1, 0, 1, 127, 0, 0, 1]) + parameters["port"].to_bytes(2, "big")
    return asks_proxy(bytes([5, 1, 0]) + address)


@probe
def round_the_proxy(parameters):
    return hears_marker(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", parameters["port"]), parameters)


# ------------------------------------------------------------------------------------------------ families of sockets


def makes_socket(family, kind, protocol=0, address=None):
    try:
        with socket.socket(family, kind, protocol) as made:
            if address is not None:
                made.bind(address)
    except OSError as error:
        return blocked(f"socket answered {says(error.errno)}")
    return escaped("the socket was made")


@probe
def raw_socket(parameters):
    return any_of(makes_socket(socket.AF_INET, socket.SOCK_RAW, protocol) for protocol in
                  (socket.IPPROTO_ICMP, socket.IPPROTO_RAW))


@probe
def packet_socket(parameters):
    return any_of(makes_socket(socket.AF_PACKET, kind, 0) for kind in (socket.SOCK_RAW, socket.SOCK_DGRAM))


@probe
def netlink_netfilter(parameters):
    return any_of(makes_socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) for protocol in (12, 9, 15, 16))


@probe
def vsock_socket(parameters):
    return makes_socket(socket.AF_VSOCK, socket.SOCK_STREAM)


@probe
def kernel_crypto_socket(parameters):
    return makes_socket(socket.AF_ALG, socket.SOCK_SEQPACKET, 0, ("hash", "sha256"))


@probe
def tun_device(parameters):
    return opens("/dev/net/tun", os.O_RDWR)


@probe
def interfaces_of_the_host(parameters):
    try:
        names = [name for _, name in socket.if_nameindex()]
    except OSError as error:
        return blocked(f"listing answered {says(error.errno)}")
    foreign = set(names) & set(parameters["interfaces"])
    return judged(foreign, "interfaces were listed", len(foreign))


@probe
def sockets_of_the_host(parameters):
    wanted = f":{parameters['port']:04X}"
    try:
        with open("/proc/net/tcp", encoding="ascii") as table:
            listed = any(wanted in line for line in table)
    except OSError as error:
        return blocked(f"open answered {says(error.errno)}")
    return judged(listed, "the canary's socket was looked for in the table")


if __name__ == "__main__":
    main()

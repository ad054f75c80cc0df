"""Plain TCP between the namespaces of an emulated cluster; run under ``network.RECIPE``.

Host 0 has one NIC, host 1 two, host 2 one. Prints what was found as JSON.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from reshard_lab.cluster import Cluster
from reshard_lab.runtime.network import Network, build, enter

PAYLOAD = os.urandom(1 << 20)
CLUSTER = Cluster(
    hosts=3, devices_per_host=2, nic=["400Mbit", "200Mbit", "1Gbps"], nics_per_host=[1, 2, 1]
)


def inside(name, function, *arguments):
    """What ``function`` returns in a process of its own in namespace ``name``; not awaited yet."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(reader)
        enter(name)
        with os.fdopen(writer, "w") as file:
            json.dump(function(*arguments), file)
        os._exit(0)
    os.close(writer)
    return reader


def result(reader):
    with os.fdopen(reader) as file:
        text = file.read()
    os.wait()
    return json.loads(text)


def sent_bytes():
    """Bytes that left by each interface of this namespace, neighbour discovery included."""
    links = json.loads(subprocess.check_output(["ip", "-json", "-s", "link"]))
    return {link["ifname"]: link["stats64"]["tx"]["bytes"] for link in links}


def serve(address, port, ready):
    with socket.create_server((address, port)) as server:
        os.write(ready, b"x")
        connection, peer = server.accept()
        with connection, connection.makefile("rb") as stream:
            return [stream.read() == PAYLOAD, peer[0]]


def call(address, port):
    before = sent_bytes()
    with socket.create_connection((address, port), timeout=10) as connection:
        connection.sendall(PAYLOAD)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)
    return {name: n - before[name] for name, n in sent_bytes().items()}


def transfer(source, target):
    """Send the payload from NIC to NIC; what the receiver says, and by which interface it left."""
    ready, ready_end = os.pipe()
    server = inside(target.name, serve, target.address, 5000, ready_end)
    os.read(ready, 1)
    client = inside(source.name, call, target.address, 5000)
    arrived, peer = result(server)
    left = {name: n for name, n in result(client).items() if n >= len(PAYLOAD)}
    return {"arrived": arrived, "peer": peer, "left_by": sorted(left)}


def settings():
    """Queues, sizes and TCP settings as this namespace has them."""
    queues = json.loads(subprocess.check_output(["tc", "-json", "qdisc"]))
    links = json.loads(subprocess.check_output(["ip", "-json", "link"]))
    ipv4 = Path("/proc/sys/net/ipv4")
    return {
        "buckets": {q["dev"]: q["options"]["rate"] for q in queues if q["kind"] == "tbf"},
        "mtu": {link["ifname"]: link["mtu"] for link in links},
        "window": (ipv4 / "tcp_rmem").read_text().split()[-1],
        "control": (ipv4 / "tcp_congestion_control").read_text().strip(),
    }


def main():
    network = Network.from_json(json.loads(json.dumps(Network.of(CLUSTER))))
    build(network)
    a, b, c, d = network.nics
    ways = {"other host": (a, d), "second NIC": (a, c), "siblings": (b, c), "itself": (c, c)}
    results = {
        "pid": os.getpid(),
        "transfers": {name: transfer(*way) for name, way in ways.items()},
        "hub": settings(),
        "nics": {nic.name: result(inside(nic.name, settings)) for nic in network.nics},
    }
    print(json.dumps(results))


if __name__ == "__main__":
    if sys.argv[1:] == ["wait"]:  # an init that lives as long as its standard input
        build(Network.of(CLUSTER))
        for _ in range(2):
            if os.fork() == 0:
                os.execvp("sleep", ["sleep", "1000"])
        print("ready", flush=True)
        sys.stdin.read()
    else:
        main()

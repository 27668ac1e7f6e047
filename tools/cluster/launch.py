"""Builds a cluster, runs COMMAND on it and removes it, however the run ends."""
import contextlib
import os
import secrets
import selectors
import signal

from cluster import folder, mpi, network
from cluster.control import Control
from cluster.host import Host
from cluster.output import Output
from cluster.ranks import Ranks

MASTER_PORT = "29500"  # every port of the new network is free
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    pass


def ignore_signals():
    """So that no signal interrupts the removal."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def interrupt(number, _):
    ignore_signals()
    raise Interrupted(number)


def per_host(options, name):
    """E.g. 10.77.0.1,10.77.1.1;10.77.0.2,10.77.1.2: hosts separated by `;`, their NICs by `,`."""
    return ";".join(",".join(name(host, nic) for nic in range(options.nics_per_host)) for host in range(options.hosts))


def environment_of_cluster(options, path):
    environment = {
        "SHUNT_JOB_TOKEN": os.environ.get("SHUNT_JOB_TOKEN") or secrets.token_hex(16),
        "MASTER_ADDR": network.address(0, 0),
        "MASTER_PORT": MASTER_PORT,
        # The ranks of a host use these in turn.
        "SHUNT_INTERFACE": ",".join(map(network.nic_name, range(options.nics_per_host))),
        "NETCLUSTER_NAME": path.name,
        "NETCLUSTER_TOOL": options.tool,
        "NETCLUSTER_RATE": options.rate,
        "NETCLUSTER_HOSTS": ",".join(f"host{host}" for host in range(options.hosts)),
        "NETCLUSTER_NICS": ",".join(map(network.nic_name, range(options.nics_per_host))),
        "NETCLUSTER_ADDRESSES": per_host(options, network.address),
        "NETCLUSTER_BRIDGE_ENDS": per_host(options, network.bridge_end),
    }
    environment |= mpi.prepare(path, options.tool, options.hosts, options.ranks_per_host, options.nics_per_host)
    return environment


def environment_of_rank(options, host, local_rank):
    return {
        "RANK": str(host * options.ranks_per_host + local_rank),
        "WORLD_SIZE": str(options.hosts * options.ranks_per_host),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(options.ranks_per_host),
    }


def build(options, path, stack):
    """Creates the hosts and connects them."""
    names = [f"{network.address(host, 0)} host{host}\n" for host in range(options.hosts)]
    (path / "hosts").write_text("".join(["127.0.0.1 localhost\n", *names]))
    environment = {**os.environ, **environment_of_cluster(options, path)}
    network.make_switch()
    hosts = []
    for index in range(options.hosts):
        hosts.append(Host(index, path, {**environment, "NETCLUSTER_HOST": str(index)}))
        stack.callback(hosts[-1].end)
    for host in hosts:
        host.wait_until_ready()
        network.plug_in(host.index, host.pid, options.nics_per_host)
        for nic in range(options.nics_per_host):
            network.limit(host.index, host.pid, nic, options.rate)
    return hosts


def start(options, hosts, ranks):
    if options.mpi:
        return ranks.start(0, hosts[0], options.command, {}, 0)
    with open(os.devnull) as nothing:
        for host in hosts:
            for local_rank in range(options.ranks_per_host):
                environment = environment_of_rank(options, host.index, local_rank)
                ranks.start(environment["RANK"], host, options.command, environment, nothing.fileno())


def launch(options):
    """Runs the command; returns the status of the first rank that failed, or 0."""
    for number in SIGNALS:
        signal.signal(number, interrupt)
    with contextlib.ExitStack() as stack:
        try:
            path = stack.enter_context(folder.own())
            selector = stack.enter_context(selectors.DefaultSelector())
            output = Output(selector, options.label)
            stack.callback(output.drain)
            hosts = build(options, path, stack)
            for host in hosts:
                host.watch(selector)
            Control(path, hosts, options.nics_per_host, selector)
            ranks = Ranks(selector, options.grace, output)
            stack.callback(ranks.end)
            start(options, hosts, ranks)
            ranks.wait()
            return ranks.status
        except Interrupted as interrupted:
            return 128 + interrupted.args[0]
        finally:
            ignore_signals()

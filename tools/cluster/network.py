"""The network: a bridge in netcluster's own network namespace, one veth pair per NIC of each host, tbf on both ends.

It is separate from the machine's network, so nothing can conflict, and it disappears with the last process.
"""
import ctypes
import json
import pathlib
import re
import subprocess

SWITCH_IPV6 = pathlib.Path("/proc/sys/net/ipv6/conf/all/disable_ipv6")
CLONE_NEWNET = 0x40000000
BITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
# A burst of 1 ms compensates for a shaper that a busy machine wakes late. Packets arrive as segments of up to 64 KiB. A segment
# larger than the burst would be split, which costs too much time; and if it was queued before the rate and the burst were
# reduced, it would block the link for ever.
BURST_SECONDS, MIN_BURST_BYTES = 1e-3, 96 << 10
QUEUE = "20ms"
MIN_RATE = 8 * 10**3  # the least that tc accepts

PROBE = """
ip link add name bridge0 type bridge
ip link add name end0 type veth peer name end1
tc qdisc add dev end0 root tbf rate 1gbit burst 128k latency 20ms
ip rule add from 10.77.0.1 table 100
mount -t sysfs sysfs /sys
"""


def why_unavailable():
    """The reason why this machine can't run clusters, in one line; None if it can."""
    probe = ["unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-ec", PROBE]
    try:
        done = subprocess.run(probe, capture_output=True, text=True)
    except FileNotFoundError as error:
        return f"{error.filename} is not installed"
    if done.returncode:
        return (done.stderr.strip() or f"the probe ended with {done.returncode}").splitlines()[-1]
    return None


def bits_per_second(rate):
    """None for no limit. Raises ValueError if `rate` is not a rate."""
    if rate in ("auto", "none"):
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]?bit)", rate.lower())
    bits = float(match[1]) * BITS[match[2]] if match else 0
    if bits < MIN_RATE:
        raise ValueError(f"a rate is e.g. 1gbit, 250mbit, {MIN_RATE // 1000}kbit at least, or none, not {rate}")
    return bits


def address(host, nic):
    return f"10.77.{nic}.{host + 1}"


def nic_name(nic):
    return f"eth{nic}"


def bridge_end(host, nic):
    return f"host{host}-{nic_name(nic)}"


def run(*command, inside=None, text=None):
    """Runs a command in this namespace (the switch's), or in that of process `inside`; returns its output."""
    prefix = [] if inside is None else ["nsenter", "--target", str(inside), "--net"]
    done = subprocess.run([*prefix, *command], input=text, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def ip(lines, inside=None):
    run("ip", "-batch", "-", inside=inside, text="\n".join(lines) + "\n")


def make_switch():
    """Moves this process into a new network namespace with the switch."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    if SWITCH_IPV6.exists():  # IPv6 multicast would be counted as received bytes
        SWITCH_IPV6.write_text("1")
    ip(["link add name switch type bridge mcast_snooping 0", "link set dev switch up"])


def plug_in(host, pid, num_nics):
    """Connects a host. Packets leave through the NIC that has their source address, whatever the socket is bound to."""
    switch, inside = [], ["link set dev lo up"]
    for nic in range(num_nics):
        name, end, own = nic_name(nic), bridge_end(host, nic), address(host, nic)
        switch += [f"link add name {end} type veth peer name {name} netns {pid}",
                   f"link set dev {end} master switch up"]
        route = f"route add 10.77.0.0/16 dev {name} src {own}"
        inside += [f"link set dev {name} addrgenmode none up",
                   f"address add {own}/24 dev {name}",
                   f"{route} metric {100 + nic}",
                   f"{route} table {100 + nic}",
                   f"rule add from {own} table {100 + nic}"]
    ip(switch)
    ip(inside, inside=pid)


def limit(host, pid, nic, rate):
    """Limits both directions: sending at the host's end, receiving at the bridge's end."""
    bits = bits_per_second(rate)
    for device, inside in ((nic_name(nic), pid), (bridge_end(host, nic), None)):
        if bits is None:
            if "tbf" in run("tc", "qdisc", "show", "dev", device, inside=inside):
                run("tc", "qdisc", "delete", "dev", device, "root", inside=inside)
            continue
        burst = max(MIN_BURST_BYTES, int(bits / 8 * BURST_SECONDS))
        run("tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{bits:.0f}bit", "burst", f"{burst}b",
            "latency", QUEUE, inside=inside)


def set_link(host, nic, state):
    """Down simulates a pulled cable: the host keeps its address, but its NIC has no carrier."""
    ip([f"link set dev {bridge_end(host, nic)} {state}"])


def counters(pid, num_nics):
    """{nic: {tx_bytes, rx_bytes}} from the host's counters."""
    links = {link["ifname"]: link["stats64"] for link in json.loads(run("ip", "-json", "-stats", "link", inside=pid))}
    return {name: {f"{way}_bytes": links[name][way]["bytes"] for way in ("tx", "rx")} for name in map(nic_name, range(num_nics))}

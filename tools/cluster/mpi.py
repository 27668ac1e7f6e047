"""Lets mpirun on host 0 start processes on other hosts: a replacement for ssh, and a hostfile (Open MPI 4)."""
import shlex

from cluster import network

AGENT = """#!/bin/sh
host=$1
shift
exec {tool} exec --cluster {name} --host "$host" -- sh -c "$*"
"""


def prepare(folder, tool, num_hosts, ranks_per_host, num_nics):
    """Writes both files; returns the environment that makes mpirun use them."""
    agent, hostfile, sessions = folder / "mpi_agent", folder / "hostfile", folder / "mpi"
    sessions.mkdir()
    agent.write_text(AGENT.format(tool=shlex.quote(tool), name=folder.name))
    agent.chmod(0o755)
    hostfile.write_text("".join(f"host{host} slots={ranks_per_host}\n" for host in range(num_hosts)))
    nics = ",".join(map(network.nic_name, range(num_nics)))
    return {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_plm_rsh_agent": str(agent),
        "OMPI_MCA_orte_default_hostfile": str(hostfile),
        "OMPI_MCA_orte_tmpdir_base": str(sessions),  # removed with the cluster, however mpirun ends
        "OMPI_MCA_oob_tcp_if_include": network.nic_name(0),
        "OMPI_MCA_btl_tcp_if_include": nics,
        # All hosts share this machine's cores, but each would bind ranks as if it had them alone.
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "OMPI_MCA_mpi_yield_when_idle": "1",
    }

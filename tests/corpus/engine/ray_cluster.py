"""A Ray cluster of three machines, simulated on this one: start it, then tell it on standard input what to kill.

python ray_cluster.py            prints the address, then obeys: `node 1`, `end`
"""

from __future__ import annotations

import sys
from typing import Any


def main() -> None:
    """Hold the cluster until `end` or the end of the input."""
    from ray.cluster_utils import Cluster

    size = {"num_cpus": 1, "memory": 1 << 30, "object_store_memory": 80 << 20, "include_dashboard": False}
    cluster: Any = Cluster(initialize_head=True, head_node_args=size)
    nodes = [cluster.add_node(**size) for _ in range(2)]
    cluster.wait_for_nodes()
    print(cluster.address, flush=True)
    try:
        for line in sys.stdin:
            command, _, number = line.strip().partition(" ")
            if command == "node":
                cluster.remove_node(nodes[int(number) - 1], allow_graceful=False)
                print("killed", flush=True)
            else:
                break
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()

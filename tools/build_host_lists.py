"""Make corpus/filters/lists/*.hosts of checkouts of public lists: `python -m tools.build_host_lists --from FOLDER`.

FOLDER holds OWNER/NAME of each repository (NOTICE has commits and licences). Of `NEVER` nothing is shipped: public
suffixes, under which strangers have their sites, and sites in use in China and everywhere. An entry that is one of
these or above one is left out; so is one below another entry. The same checkouts make the same bytes.
"""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from corpus.engine import durable
from corpus.filters.url_rules import FOLDER, normal_host, pack_hosts

SINFONIETTA = "Sinfonietta/hostfiles/"
HOSTS_VN = "bigdargon/hostsVN/extensions/source/"
SHADOW = "ShadowWhisperer/BlockLists/RAW/"
V2FLY = "v2fly/domain-list-community/data/"
NEODEV = "neodevpro/neodevhost/"
SOURCES = {
    "gambling": f"{SINFONIETTA}gambling-hosts {SHADOW}Gambling {HOSTS_VN}gambling.txt {HOSTS_VN}gambling-VN.txt",
    "porn": f"{SINFONIETTA}pornography-hosts {SHADOW}Adult {HOSTS_VN}adult.txt {HOSTS_VN}adult-VN.txt "
    f"{V2FLY}category-porn",
    "scam": f"{SHADOW}Scam {SHADOW}Malware",
}
NEVER = f"{NEODEV}public_suffix_list.dat {NEODEV}allow {V2FLY}geolocation-cn"
PLATFORMS = "blog.sina.com.cn wordpress.com blogspot.com github.io lofter.com 163.com qq.com wixsite.com"
_HOST = re.compile(r"(?:0\.0\.0\.0\s+|full:|domain:|\*\.|!)?((?:[\w-]+\.)*[\w-]+)(?:[\s#].*)?")


def read_hosts(file: Path) -> Iterator[str]:
    """The hosts of a file: plain, as /etc/hosts has them, as rules of the public suffix list or of v2fly."""
    for line in map(str.strip, file.read_text("utf-8", "replace").splitlines()):
        if line.startswith("include:"):
            yield from read_hosts(file.parent / line.split()[0].removeprefix("include:"))
        elif found := _HOST.fullmatch(line):
            host = normal_host(found[1])
            yield host.removeprefix("www.") if host.count(".") > 1 else host


def parents(host: str) -> list[str]:
    """`a.b.c` -> `b.c`, `c`."""
    labels = host.split(".")
    return [".".join(labels[first:]) for first in range(1, len(labels))]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tools.build_host_lists", description=__doc__.splitlines()[0])
    parser.add_argument("--from", dest="folder", type=Path, required=True)
    folder = parser.parse_args().folder
    never = {host for file in NEVER.split() for host in read_hosts(folder / file)} | set(PLATFORMS.split())
    never |= {parent for host in never for parent in parents(host)}
    for category, files in SOURCES.items():
        named = {host for file in files.split() for host in read_hosts(folder / file)}
        hosts = {host for host in named - never if "." in host and not host[-1].isdigit()}
        kept = {host for host in hosts if hosts.isdisjoint(parents(host))}
        path = FOLDER / f"{category}.hosts"
        durable.write_bytes(path, pack_hosts(kept))
        print(
            f"{category}: {len(kept):,} hosts, sha256 {durable.sha256_file(path)}; "
            f"refused: {' '.join(sorted(named & never))}"
        )

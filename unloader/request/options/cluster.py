"""Options on the cluster whose workers read the work units."""

from __future__ import annotations

import os

from msgspec.structs import replace

from unloader.model import ClusterOptions
from unloader.request.clusters import FORMS, parse_cluster
from unloader.request.options.kinds import Parsed, PathText
from unloader.request.options.option import Option

_CLUSTER = Option(
    name="cluster",
    kind=Parsed("ADDRESS", parse_cluster),
    section="Cluster",
    commands=("run",),
    effect="none",
    field="cluster.address",
    owner=ClusterOptions,
    default_text="none",
    empty=False,
    record="cluster",
    help=(
        f"Read the work units on the workers of a Dask cluster: {FORMS}. "
        "local:N starts a cluster of N workers on this machine, for tests."
    ),
    example="tcp://scheduler:8786",
)
_SECURITY = Option(
    name="cluster-security",
    kind=PathText("PATH"),
    section="Cluster",
    commands=("run",),
    effect="none",
    field="cluster.security",
    owner=ClusterOptions,
    shape=os.path.abspath,
    default_text="none",
    empty=False,
    help=(
        "Certificates for a tls:// cluster. PATH is a directory with ca.pem, cert.pem and "
        "key.pem, or a TOML file with the paths ca, cert and key."
    ),
    example="certificates --cluster tls://scheduler:8786",
)

OPTIONS = (_CLUSTER, _SECURITY)

RESUMING = (
    replace(
        _CLUSTER,
        commands=("resume",),
        section="Resume",
        effect="unrecorded",
        record="",
        field="",
        owner=None,
        default_text="as in the run",
        help=(f"Cluster for the rest of the run: {FORMS}. none reads the rest on this machine."),
    ),
    replace(
        _SECURITY,
        commands=("resume",),
        section="Resume",
        effect="unrecorded",
        field="",
        owner=None,
        shape=None,
        default_text="as in the run",
    ),
)
"""The cluster options of a resumed run."""

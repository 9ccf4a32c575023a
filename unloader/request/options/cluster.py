"""Options on the cluster whose workers read the work units."""

from __future__ import annotations

import os
from dataclasses import replace

from unloader.model import ClusterOptions
from unloader.request.clusters import FORMS, parse_cluster
from unloader.request.options.kinds import Parsed, PathText
from unloader.request.options.option import Option

_CLUSTER = Option(
    name="cluster",
    kind=Parsed("ADDRESS", parse_cluster),
    section="More machines",
    commands=("run",),
    effect="none",
    field="cluster.address",
    owner=ClusterOptions,
    default_text="none",
    empty=False,
    record="cluster",
    help=f"Read the work units in the workers of a Dask cluster: {FORMS}. local:N starts a cluster "
    "of N workers on this machine for the run, for a try.",
)
_SECURITY = Option(
    name="cluster-security",
    kind=PathText("PATH"),
    section="More machines",
    commands=("run",),
    effect="none",
    field="cluster.security",
    owner=ClusterOptions,
    shape=os.path.abspath,
    default_text="none",
    empty=False,
    help="Certificates for a tls:// cluster: a directory with ca.pem, cert.pem and key.pem, or a "
    "TOML file with the paths ca, cert and key.",
)

OPTIONS = (_CLUSTER, _SECURITY)

RESUMING = (
    replace(
        _CLUSTER,
        commands=("resume",),
        section="How to go on",
        effect="unrecorded",
        record="",
        field="",
        owner=None,
        default_text="that of the run",
        help=f"Cluster for the rest of the run: {FORMS}. none reads the rest on this machine.",
    ),
    replace(
        _SECURITY,
        commands=("resume",),
        section="How to go on",
        effect="unrecorded",
        field="",
        owner=None,
        shape=None,
        default_text="that of the run",
    ),
)
"""The same of a run that goes on."""

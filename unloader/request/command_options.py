"""Options of single commands; a run does not load them."""

from __future__ import annotations

from unloader.request import settings
from unloader.request import value_types as kinds
from unloader.request.option import Option


class DemoOptions:
    group, commands = "Table", ("demo",)
    rows = Option(kinds.COUNT, common=True, default=1_000_000)
    """Number of rows of the table, such as 200k, 50M or 10_000_000."""
    dir = Option(kinds.path("DIR", "directory"), empty=True, common=True, default="unloader-demo")
    """Directory for the database file and the output."""
    parallelism = Option(kinds.PARALLELISM, planned=True, common=True, default=0)
    """Number of workers, at most one for each work unit. auto is the number of usable cores."""


class VerifyOptions:
    group, commands = "Check", ("verify",)
    strict = Option(common=True)
    """Fail if the directories of the run hold other files."""
    level = Option(
        kinds.choice("count", "full", "source"), common=True, example="full", default="count"
    )
    """What to compare. count compares the files as a whole and the number of rows. full also
    compares the values in the files with the checksums of a run with --verify full. source also
    compares them with checksums that SOURCE computes."""
    parallelism = Option(kinds.PARALLELISM, planned=True, common=True, default=0)
    """Number of files to read in parallel. auto is the number of usable cores."""


class StatusOptions:
    group, commands = "Watch", ("status",)
    watch = Option()
    """Show the run again until it has ended."""
    interval = Option(kinds.SECONDS, example="5 --watch", default=1.0)
    """Seconds between two pages of --watch."""


class RunsOptions:
    group, commands = "Search", ("runs",)
    depth = Option(kinds.whole(0), default=3)
    """Levels of directories to search below DIR. 0 searches DIR alone."""


class StopOptions:
    group, commands = "Wait", ("stop",)
    timeout = Option(kinds.SECONDS, default=300.0)
    """Seconds to wait for the end of the run. 0 does not wait."""


class SetOptions:
    group, commands = "Change", ("set",)
    parallelism = Option(kinds.RUN_PARALLELISM, common=True)
    """Number of workers from now on, up to the number of seats of the run. adaptive finds the best
    number by measuring. auto uses all seats."""
    max_sessions = Option(kinds.whole(0), common=True)
    """Most sessions of the run in the database. 0 sets no limit."""
    max_cpu = Option(kinds.PERCENT, common=True)
    """Highest load of the CPUs on the host of the run, such as 75%. 0 does not check."""
    slow_between = Option(kinds.HOURS_OR_NONE, example="08:00-18:00")
    """Hours with --slow-parallelism workers, in the local time of the host of the run. never
    removes the hours."""
    slow_parallelism = Option(kinds.whole(1))
    """Number of workers in the hours of --slow-between."""
    timeout = Option(kinds.SECONDS, group="Wait", default=30.0)
    """Seconds to wait until the run has applied the change. 0 does not wait."""


class ReportOptions:
    group, commands = "Page", ("report",)
    output = Option(kinds.FILE_OR_STDOUT)
    """Write the page to FILE. - is standard output, the default."""
    ceilings = Option(kinds.FILE)
    """Draw the ceilings in FILE into the curve of a sweep. unloader preflight --save writes such a
    file."""


class InitOptions:
    group, commands = "Job", ("init",)
    schema = Option(kinds.Kind("S"), common=True)
    """Schema of the tables in the job file. Put double quotes around a name that is not plain. The
    option is not needed if all tables of the source are in one schema."""
    output = Option(kinds.FILE_OR_STDOUT, kept=False, common=True)
    """Write the job file to FILE. FILE must not exist. - is standard output, the default."""


class CompletionOptions:
    group, commands = "Completion", ("completion",)
    output = Option(kinds.FILE_OR_STDOUT, kept=False, common=True)
    """Write the script to FILE instead. - is standard output."""


class CleanOptions:
    group, commands = "Clean", ("clean",)
    dry_run = Option()
    """Only show the files that would be removed."""


class KeepersOptions:
    group, commands = "End", ("keepers",)
    end = Option(kinds.Kind("RUN_ID"))
    """End the keeper of this run. The run cannot be resumed afterwards."""
    end_all = Option()
    """End all keepers that no active run uses."""


class SweepOptions:
    group, commands = "Points", ("sweep",)
    parallelism = Option(
        kinds.LEVELS, default_text="1, 2, 4 and so on up to the usable cores", common=True
    )
    """Numbers of workers to measure. Write for instance 1,2,4 or 32..4:-4,3,2."""
    repeats = Option(kinds.whole(1, 100), default=3)
    """Measurements of each point. All points are measured once, in a random order, before the next
    round."""
    max_spread = Option(kinds.SHARE, default=0.1)
    """Measure a point again, up to twice --repeats, if its speeds differ by more than this share of
    their median. The point is marked if they still differ."""
    warm_up = Option(kinds.whole(0, 100), default=1)
    """Measurements at the start that are not counted, so that all points find the same caches."""
    sample = Option(kinds.SHARE, default_text="the whole table", common=True)
    """Read only this share of the table. It has whole work units from all parts of the table. All
    points read the same rows."""
    seconds = Option(kinds.SECONDS, default_text="no limit", common=True)
    """End each measurement after this many seconds."""
    seed = Option(kinds.whole(0), default=0)
    """Number that sets the random order. The same number gives the same order."""
    csv = Option(kinds.FILE, example="points.csv")
    """Write the points to FILE, with a line for each measurement, for --replay."""
    job = Option(kinds.path("FILE.toml", "file"), common=True)
    """Write a job file with the recommended options. It is for unloader run and has the other
    options of this command. If nothing is recommended, the exit status is 10."""


class AnalysisOptions:
    group, commands = "Analysis", ("sweep",)
    replay = Option(kinds.path("POINTS.csv", "file"), empty=True, common=True)
    """Analyse the points in this file. It needs the columns parallelism and seconds. It can have
    bytes, rows, and figures of the load such as cpu."""
    spread = Option(kinds.PERCENT_BELOW_100, default=0.03)
    """Two levels are equally fast if they differ by at most this share. If levels were repeated,
    the repeats set it."""
    cpu_limit = Option(kinds.PERCENT_BELOW_100, default=0.75)
    """Highest load of the CPUs that a level can sustain beside other work."""
    queue_limit = Option(kinds.SECONDS, default=1.0)
    """Longest wait of a stage for its consumer, in seconds. A level with a longer wait is not
    valid."""
    discount = Option(kinds.PERCENT_BELOW_100, default=0.2)
    """Share that is subtracted from the measured speed, to plan production."""
    report = Option(kinds.FILE, example="sweep.html")
    """Write an HTML page on the sweep to FILE: its curve, stages, timelines and load. It needs no
    network. If it cannot be written, the exit status is 10."""


class TopologyOptions:
    group, commands = "Machine", ("topology",)
    parallelism = Option(kinds.PARALLELISM, group="Placement", planned=True, common=True, default=0)
    """Number of workers to place. auto is the number of CPUs that can be used in parallel."""
    sysfs = Option(kinds.path("DIR|FILE"), empty=True)
    """Show another machine from its files. DIR has the layout of /sys/devices/system, with node/
    and cpu/ in it. FILE was written by --record. This machine is ignored."""
    allowed_cpus = Option(kinds.NUMBERS, default_text="all")
    """Use only these CPUs, as if a cpuset or taskset had set them, such as 0-7,16-23."""
    record = Option(kinds.FILE, empty=True, example="machine.txt")
    """Write a description of this machine to FILE, as one text file to send. It holds numbers of
    CPUs and nodes, and sizes. It holds no names."""


class PreflightOptions:
    group, commands = "Measure", ("preflight",)
    without = Option(kinds.GLOBS, empty=True)
    """Leave out disk, source, encoder or connection. Separate several with commas, or repeat the
    option."""
    network = Option(kinds.Kind("HOST:PORT", split=settings.plain_names), example="db01:7077")
    """Measure what this host receives from `unloader network listen` on other hosts, such as the
    host of the database. With --cluster, its Dask workers receive. Separate several with commas,
    or repeat the option."""
    levels = Option(kinds.LEVELS, default_text="1,2,4 and so on up to --parallelism")
    """Numbers of workers that read the source, such as 1,2,4 or 32..4:-4."""
    source_seconds = Option(kinds.SECONDS, default=5.0)
    """Seconds of fetching for each number of workers."""
    disk_bytes = Option(kinds.SIZE_FROM_1, common=True, default=1_073_741_824)
    """Bytes to write for one figure of a disk. Write more than the caches of the disk and its
    controller hold."""
    disk_seconds = Option(kinds.SECONDS, default=10.0)
    """Seconds of writing for one figure of a disk. The figure ends at --disk-bytes or after these
    seconds."""
    rounds = Option(kinds.whole(1, 100), default=3)
    """Rounds for one figure of a disk. The figure is the median."""
    save = Option(kinds.FILE, common=True)
    """Write the result to FILE as JSON. It is for `unloader run --ceilings FILE` and `unloader size
    --from FILE`."""


class NetworkOptions:
    group, commands = "Test", ("network",)
    bind = Option(kinds.Kind("ADDR:PORT"), example="10.0.0.1:7077", common=True)
    """Address to listen on while sending, so that this host both sends and counts. It is left out
    of the targets."""
    rate = Option(kinds.SIZE, common=True, default=100_000_000)
    """Bytes per second to each target, such as 100MB. 0 sets no limit. A listener does not send
    back faster than this."""
    duration = Option(kinds.SECONDS, common=True, default=10.0)
    """Seconds of the test, at most 3600."""
    count = Option(kinds.whole(0), default=0)
    """Most packets or messages to each target. 0 sets no limit."""
    wait = Option(kinds.SECONDS, default_text="10, or 60 to listen")
    """Seconds to wait for the targets, or for the first sender."""
    polite = Option()
    """Send nothing before all targets have answered."""
    two_way = Option(common=True)
    """The targets send as well, in the same test."""
    packet_size = Option(kinds.whole(128, 65_507), example="8972", common=True, default=1468)
    """Bytes of a datagram. 1468 fills a frame of Ethernet. 8972 fills a jumbo frame."""
    burst = Option(kinds.whole(0, 64), default=0)
    """Most datagrams of one system call. 0 is as many as the kernel takes."""
    buffer = Option(kinds.SIZE_FROM_1, default=4_194_304)
    """Bytes of the buffers of a socket. The kernel limits them to net.core.rmem_max and
    wmem_max."""
    peer = Option(
        kinds.Kind("HOST:PORT", split=settings.plain_names), group="Messages", common=True
    )
    """Host to send messages to. Separate several with commas, or repeat the option."""
    message_size = Option(kinds.SIZE_FROM_1, group="Messages", default=65_536)
    """Bytes of a message."""
    message_size_max = Option(kinds.SIZE_FROM_1, group="Messages", default_text="all are equal")
    """Largest message. The sizes are spread evenly from --message-size to this size."""
    threads = Option(kinds.whole(1, 64), group="Messages", default=1)
    """Connections to each peer, each with a thread."""
    blocking = Option(group="Messages")
    """Wait for a response of the same size after each message."""
    relay = Option(group="Messages")
    """Pass the connections to --bind on to --peer."""
    reverse = Option(group="Messages")
    """The peers send, and this host counts. It is the direction of an unload, if a peer is on the
    host of the database."""
    backlog = Option(kinds.SIZE_FROM_1, group="Messages", default=67_108_864)
    """Most bytes that a connection sends without a receipt."""
    warm_up_seconds = Option(kinds.SECONDS, group="Messages", default=0.0)
    """Seconds at the start that are not counted."""
    sample_every = Option(kinds.whole(1), group="Messages", default=10)
    """Number of messages for one measured latency."""
    interval = Option(kinds.SECONDS, group="Report", default=2.0)
    """Seconds between two reports."""
    log = Option(kinds.FILE, group="Report", example="network.csv")
    """Write the reports to FILE as CSV, with a line for each flow."""


class SamplingOptions:
    group, commands = "Output", ("codecs", "preflight")
    sample = Option(kinds.SIZE_FROM_1, default=33_554_432)
    """Size of the sample in memory, in bytes. It is read from at most five work units."""


class SizeOptions:
    group, commands = "Target", ("size",)
    rows = Option(kinds.COUNT, default_text="as measured", common=True)
    """Number of rows of the table, such as 200k, 50M or 10G."""
    row_bytes = Option(kinds.NUMBER, default_text="as measured", common=True)
    """Average bytes of the text of one row, before compression."""
    window = Option(kinds.SECONDS, default_text="none", common=True)
    """Time in which the unload must end, such as 3600, 90m or 1h."""
    cores = Option(kinds.whole(1, 1_000_000), default_text="none", common=True)
    """Cores of the machine to size. Threads of one core count once."""
    disks = Option(kinds.whole(1, 100_000), default_text="not a limit", common=True)
    """Number of disks that the output is spread over."""
    disk_rate = Option(kinds.SIZE_FROM_1, default_text="as measured")
    """Bytes per second that one disk takes, such as 500MB."""
    cpu_ratio = Option(kinds.NUMBER, default=1.0)
    """Benchmark score of one core of the machine to size, divided by the score of the machine that
    measured. One such score is SPECrate 2017 Integer, divided by the number of cores."""
    discount = Option(kinds.PERCENT, default=0.2)
    """Percentage that is subtracted from each measured rate, below 100."""
    cpu_limit = Option(kinds.PERCENT, default=0.75)
    """Percentage of the time of the cores that the unload may use."""
    from_ = Option(kinds.FILES, group="Measured", empty=True, name="from", common=True)
    """Files with measured figures. They are the directory or manifest of a finished run, the points
    of a sweep as CSV or JSON, or a file from `unloader preflight --save`. Separate several with
    commas, or repeat the option."""
    measured_cores = Option(
        kinds.whole(1, 1_000_000), group="Measured", default_text="one for each worker"
    )
    """Cores of the machine that measured, if its figures do not have them."""

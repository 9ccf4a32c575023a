"""Options of single commands, and options on progress and results: none is part of a request."""

from __future__ import annotations

from unloader.request.option import ANSWERING, WATCHED, Option, declared
from unloader.request.value_types import (
    CLUSTER,
    COUNT,
    CPU_SHARE_OR_NONE,
    FILE,
    FILES,
    GLOBS,
    HOURS_OR_NONE,
    LEVELS,
    NUMBER,
    NUMBERS,
    PARALLELISM,
    PERCENT,
    PERCENT_BELOW_100,
    RUN_PARALLELISM,
    SECONDS,
    SHARE,
    SIZE_FROM_1,
    Kind,
    choice,
    path,
    whole,
)

PROGRAM_OPTIONS = declared(
    "Options",
    ("",),
    debug=Option("Show tracebacks and debug messages."),
)

DEMO_OPTIONS = declared(
    "Table",
    ("demo",),
    rows=Option(
        "Number of rows of the table, such as 200k, 50M or 10_000_000.",
        COUNT,
        common=True,
        default=10_000_000,
    ),
    dir=Option(
        "Directory for the database file and the output.",
        path("DIR", "directory"),
        empty=True,
        common=True,
        default="unloader-demo",
    ),
    parallelism=Option(
        "Number of workers, at most one for each work unit. auto is the number of usable cores.",
        PARALLELISM,
        planned=True,
        common=True,
        example="2",
        default=0,
    ),
)

RESUME_OPTIONS = declared(
    "Resume",
    ("resume",),
    new_snapshot=Option(
        "Unload everything again at a new snapshot. Finished work units are dropped.", common=True
    ),
    parallelism=Option(
        "Number of workers for the rest of the run. auto is the number of usable cores. Only the "
        "command line sets it, and not a variable.",
        PARALLELISM,
        planned=True,
        default_text="as in the run",
        common=True,
        example="8",
    ),
    cluster=Option(
        "Cluster for the rest of the run: tcp://HOST:PORT, tls://HOST:PORT, local:N or none. "
        "none reads the rest on this machine.",
        CLUSTER,
        default_text="as in the run",
        example="tcp://scheduler:8786",
    ),
    cluster_security=Option(
        "Certificates for a tls:// cluster. PATH is a directory with ca.pem, cert.pem and "
        "key.pem, or a TOML file with the paths ca, cert and key.",
        path("PATH"),
        default_text="as in the run",
        example="certificates --cluster tls://scheduler:8786",
    ),
)

VERIFY_OPTIONS = declared(
    "Check",
    ("verify",),
    strict=Option("Fail if the directories of the run hold other files.", common=True),
    level=Option(
        "What to compare. count compares the files as a whole and the number of rows. full also "
        "compares the values in the files with the checksums of a run with --verify full. source "
        "also compares them with checksums that SOURCE computes.",
        choice("count", "full", "source"),
        common=True,
        example="full",
        default="count",
    ),
    parallelism=Option(
        "Number of files to read in parallel. auto is the number of usable cores.",
        PARALLELISM,
        planned=True,
        common=True,
        example="8",
        default=0,
    ),
)

STATUS_OPTIONS = declared(
    "Watch",
    ("status",),
    watch=Option("Show the run again until it has ended."),
    interval=Option(
        "Seconds between two pages of --watch.", SECONDS, example="5 --watch", default=1.0
    ),
)

RUNS_OPTIONS = declared(
    "Search",
    ("runs",),
    depth=Option(
        "Levels of directories to search below DIR. 0 searches DIR alone.", whole(0), default=3
    ),
)

STOP_OPTIONS = declared(
    "Wait",
    ("stop",),
    timeout=Option(
        "Seconds to wait for the end of the run. 0 does not wait.", SECONDS, default=300.0
    ),
)

SET_OPTIONS = declared(
    "Change",
    ("set",),
    parallelism=Option(
        "Number of workers from now on, up to the number of seats of the run. adaptive finds the "
        "best number by measuring. auto uses all seats.",
        RUN_PARALLELISM,
        common=True,
    ),
    max_sessions=Option(
        "Most sessions of the run in the database. 0 sets no limit.",
        whole(0),
        common=True,
        example="8",
    ),
    max_cpu=Option(
        "Highest load of the CPUs on the host of the run, such as 75%. 0 does not check.",
        CPU_SHARE_OR_NONE,
        common=True,
        example="75%",
    ),
    slow_between=Option(
        "Hours with --slow-parallelism workers, in the local time of the host of the run. never "
        "removes the hours.",
        HOURS_OR_NONE,
        example="08:00-18:00",
    ),
    slow_parallelism=Option(
        "Number of workers in the hours of --slow-between.", whole(1), example="2"
    ),
    timeout=Option(
        "Seconds to wait until the run has applied the change. 0 does not wait.",
        SECONDS,
        group="Wait",
        default=30.0,
    ),
)

REPORT_OPTIONS = declared(
    "Page",
    ("report",),
    output=Option("Write the page to FILE. The default is standard output.", FILE),
    ceilings=Option(
        "Draw the ceilings in FILE into the curve of a sweep. unloader preflight --save writes "
        "such a file.",
        FILE,
    ),
)

INIT_OPTIONS = declared(
    "Job",
    ("init",),
    schema=Option(
        "Schema of the tables in the job file. Put double quotes around a name that is not "
        "plain. The option is not needed if all tables of the source are in one schema.",
        Kind("S"),
        common=True,
    ),
    output=Option(
        "Write the job file to FILE. FILE must not exist. The default is standard output.",
        FILE,
        kept=False,
        common=True,
    ),
)

CLEAN_OPTIONS = declared(
    "Clean",
    ("clean",),
    dry_run=Option("Only show the files that would be removed."),
)

KEEPERS_OPTIONS = declared(
    "End",
    ("keepers",),
    end=Option("End the keeper of this run. The run cannot be resumed afterwards.", Kind("RUN_ID")),
    end_all=Option("End all keepers that no active run uses."),
)

SWEEP_OPTIONS = declared(
    "Points",
    ("sweep",),
    parallelism=Option(
        "Numbers of workers to measure. Write for instance 1,2,4 or 32..4:-4,3,2.",
        LEVELS,
        default_text="1, 2, 4 and so on up to the usable cores",
        common=True,
    ),
    repeats=Option(
        "Measurements of each point. All points are measured once, in a random order, before the "
        "next round.",
        whole(1, 100),
        default=3,
    ),
    max_spread=Option(
        "Measure a point again, up to twice --repeats, if its speeds differ by more than this "
        "share of their median. The point is marked if they still differ.",
        SHARE,
        default=0.1,
    ),
    warm_up=Option(
        "Measurements at the start that are not counted, so that all points find the same caches.",
        whole(0, 100),
        default=1,
    ),
    sample=Option(
        "Read only this share of the table. It has whole work units from all parts of the table. "
        "All points read the same rows.",
        SHARE,
        default_text="the whole table",
        common=True,
    ),
    seconds=Option(
        "End each measurement after this many seconds.",
        SECONDS,
        default_text="no limit",
        common=True,
    ),
    seed=Option(
        "Number that sets the random order. The same number gives the same order.",
        whole(0),
        default=0,
    ),
    csv=Option(
        "Write the points to FILE, with a line for each measurement, for --replay.",
        FILE,
        example="points.csv",
    ),
    job=Option(
        "Write a job file with the recommended options. It is for unloader run and has the other "
        "options of this command. If nothing is recommended, the exit status is 10.",
        path("FILE.toml", "file"),
        common=True,
    ),
)

ANALYSIS_OPTIONS = declared(
    "Analysis",
    ("sweep",),
    replay=Option(
        "Analyse the points in this file. It needs the columns parallelism and seconds. It can "
        "have bytes, rows, and figures of the load such as cpu.",
        path("POINTS.csv", "file"),
        empty=True,
        common=True,
    ),
    spread=Option(
        "Two levels are equally fast if they differ by at most this share. If levels were "
        "repeated, the repeats set it.",
        PERCENT_BELOW_100,
        default=0.03,
    ),
    cpu_limit=Option(
        "Highest load of the CPUs that a level can sustain beside other work.",
        PERCENT_BELOW_100,
        default=0.75,
    ),
    queue_limit=Option(
        "Longest wait of a stage for its consumer, in seconds. A level with a longer wait is not "
        "valid.",
        SECONDS,
        default=1.0,
    ),
    discount=Option(
        "Share that is subtracted from the measured speed, to plan production.",
        PERCENT_BELOW_100,
        default=0.2,
    ),
    report=Option(
        "Write an HTML page on the sweep to FILE: its curve, stages, timelines and load. It "
        "needs no network. If it cannot be written, the exit status is 10.",
        FILE,
        example="sweep.html",
    ),
)

TOPOLOGY_OPTIONS = declared(
    "Machine",
    ("topology",),
    parallelism=Option(
        "Number of workers to place. auto is the number of CPUs that can be used in parallel.",
        PARALLELISM,
        group="Placement",
        planned=True,
        common=True,
        example="8",
        default=0,
    ),
    sysfs=Option(
        "Show another machine from its files. DIR has the layout of /sys/devices/system, with "
        "node/ and cpu/ in it. FILE was written by --record. This machine is ignored.",
        path("DIR|FILE"),
        empty=True,
    ),
    allowed_cpus=Option(
        "Use only these CPUs, as if a cpuset or taskset had set them, such as 0-7,16-23.",
        NUMBERS,
        default_text="all",
    ),
    record=Option(
        "Write a description of this machine to FILE, as one text file to send. It holds numbers "
        "of CPUs and nodes, and sizes. It holds no names.",
        FILE,
        empty=True,
        example="machine.txt",
    ),
)

PREFLIGHT_OPTIONS = declared(
    "Measure",
    ("preflight",),
    without=Option(
        "Leave out disk, source, encoder or connection. Separate several with commas, or repeat "
        "the option.",
        GLOBS,
        empty=True,
    ),
    levels=Option(
        "Numbers of workers that read the source, such as 1,2,4 or 32..4:-4.",
        LEVELS,
        default_text="1,2,4 and so on up to --parallelism",
        example="1,2,4,8",
    ),
    source_seconds=Option("Seconds of fetching for each number of workers.", SECONDS, default=5.0),
    disk_bytes=Option(
        "Bytes to write for one figure of a disk. Write more than the caches of the disk and its "
        "controller hold.",
        SIZE_FROM_1,
        common=True,
        default=1_073_741_824,
    ),
    disk_seconds=Option(
        "Seconds of writing for one figure of a disk. The figure ends at --disk-bytes or after "
        "these seconds.",
        SECONDS,
        default=10.0,
    ),
    rounds=Option(
        "Rounds for one figure of a disk. The figure is the median.", whole(1, 100), default=3
    ),
    save=Option(
        "Write the result to FILE as JSON. It is for `unloader run --ceilings FILE` and "
        "`unloader size --from FILE`.",
        FILE,
        common=True,
    ),
)

SAMPLING_OPTIONS = declared(
    "Output",
    ("codecs", "preflight"),
    sample=Option(
        "Size of the sample in memory, in bytes. It is read from at most five work units.",
        SIZE_FROM_1,
        example="64MiB",
        default=33_554_432,
    ),
)

SIZE_OPTIONS = declared(
    "Target",
    ("size",),
    rows=Option(
        "Number of rows of the table, such as 200k, 50M or 10G.",
        COUNT,
        default_text="as measured",
        common=True,
    ),
    row_bytes=Option(
        "Average bytes of the text of one row, before compression.",
        NUMBER,
        default_text="as measured",
        common=True,
    ),
    window=Option(
        "Time in which the unload must end, such as 3600, 90m or 1h.",
        SECONDS,
        default_text="none",
        common=True,
    ),
    cores=Option(
        "Cores of the machine to size. Threads of one core count once.",
        whole(1, 1_000_000),
        default_text="none",
        common=True,
    ),
    disks=Option(
        "Number of disks that the output is spread over.",
        whole(1, 100_000),
        default_text="not a limit",
        common=True,
        example="4",
    ),
    disk_rate=Option(
        "Bytes per second that one disk takes, such as 500MB.",
        SIZE_FROM_1,
        default_text="as measured",
        example="500MB",
    ),
    network_rate=Option(
        "Bytes per second of the network to the source. 1250MB is 10 Gbit/s.",
        SIZE_FROM_1,
        default_text="not a limit",
        example="1250MB",
    ),
    cpu_ratio=Option(
        "Benchmark score of one core of the machine to size, divided by the score of the machine "
        "that measured. One such score is SPECrate 2017 Integer, divided by the number of cores.",
        NUMBER,
        default=1.0,
    ),
    discount=Option(
        "Percentage that is subtracted from each measured rate, below 100.", PERCENT, default=0.2
    ),
    cpu_limit=Option(
        "Percentage of the time of the cores that the unload may use.", PERCENT, default=0.75
    ),
    from_=Option(
        "Files with measured figures. They are the directory or manifest of a finished run, the "
        "points of a sweep as CSV or JSON, or a file from `unloader preflight --save`. Separate "
        "several with commas, or repeat the option.",
        FILES,
        group="Measured",
        empty=True,
        name="from",
        common=True,
    ),
    like=Option(
        "Use the rates of a published record instead of your own. They are of another program "
        "and machine: ten billion rows in 58 minutes on 16 cores.",
        choice("record"),
        group="Measured",
        common=True,
    ),
    measured_cores=Option(
        "Cores of the machine that measured, if its figures do not have them.",
        whole(1, 1_000_000),
        group="Measured",
        default_text="one for each worker",
        example="16",
    ),
)

DISPLAY_OPTIONS = declared(
    "Display",
    WATCHED,
    units=Option("Show all work units with their statements.", commands=("plan",), kept=False),
    progress=Option(
        "Progress on stderr. auto is a bar on a terminal, and a log elsewhere.",
        choice("auto", "bar", "log", "none"),
        example="log",
        default="auto",
    ),
    log_format=Option(
        "Write the log as text, or as a JSON object on each line.",
        choice("text", "json"),
        default="text",
    ),
    log_interval=Option("Seconds between two lines of progress in the log.", SECONDS, default=30.0),
    json=Option("Write the result to stdout as one JSON object.", commands=ANSWERING, kept=False),
    quiet=Option("Write only errors, and the result with --json.", commands=ANSWERING, kept=False),
)

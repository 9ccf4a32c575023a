"""The types that travel between command line, engine and workers.

    SourceSpec, Snapshot      where the rows are, and as of when                  source
    Extract, Projection       which columns are read, and in which form           source
    OutputOptions             where rows go, and how they are written             output
    Request, Route            a whole job as the user asked for it                request
    Selection                 the rows and columns of a job                       request
    UnitTask, UnitResult      a worker's order, and its answer                     work
    FinishedUnit              the same in the journal and in the manifest         work

All are frozen, picklable and built of plain data: a worker process receives nothing else. No
secret is stored in any of them; `SecretReference` says where one is found.
"""

from __future__ import annotations

from unloader.model.output import EncryptionOptions, FilePer, LakeTable, OutputOptions, SaveMode
from unloader.model.request import (
    COMPARING,
    Cause,
    ClusterOptions,
    ConcurrencyOptions,
    Request,
    RetryOptions,
    Route,
    SeatOptions,
    Selection,
    Setting,
    TableCounts,
    TablesOptions,
    VerifyLevel,
    Widths,
)
from unloader.model.source import (
    Consistency,
    Extract,
    Fetch,
    Lossless,
    NamePart,
    Nanoseconds,
    Projection,
    ReadColumn,
    SampledKeys,
    SecretReference,
    SessionOptions,
    Snapshot,
    SourceSpec,
    TableName,
    TableSummary,
    ValueOptions,
)
from unloader.model.work import (
    AttemptFailure,
    BoundSeat,
    Bundle,
    FetchOrder,
    FinishedUnit,
    OutputResult,
    OutputTask,
    Preload,
    Release,
    StageLoad,
    Stages,
    UnitResult,
    UnitTask,
    Waits,
)
from unloader.request.settings import Part, PartitionBy

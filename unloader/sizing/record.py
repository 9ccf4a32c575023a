"""A published record, for those who have measured nothing themselves: used only by name.

"Unloading ten billion rows in 60 minutes", Insight Technology, 2015-05-22: table HASH_PART_0160 of
10,000,000,000 rows, 165 bytes of CSV each on average, from an Oracle database on the same machine;
two Xeon E5-2630 v3 (16 cores, 32 logical CPUs) and disks that take 496.897 MB/s (MB = 2^20).
"""

from __future__ import annotations

from unloader.sizing.model import Basis, Measured

_ROWS = 1e10
_ROW_BYTES = 165.0
_CORES = 16
_SECONDS = {
    32: 3497,
    28: 4740,
    24: 4463,
    20: 5260,
    16: 6298,
    12: 7158,
    8: 6805,
    4: 12841,
    3: 18380,
    2: 23760,
}

RECORD = Basis(
    origins=("the published record of 2015: Oracle, 2 x Xeon E5-2630 v3, 16 cores",),
    measured=tuple(
        Measured(
            workers=workers,
            seconds=seconds,
            rows=_ROWS,
            bytes=_ROWS * _ROW_BYTES,
            cores=min(workers, _CORES),
        )
        for workers, seconds in sorted(_SECONDS.items())
    ),
    rows=_ROWS,
    row_bytes=_ROW_BYTES,
    disk_rate=496.897 * 2**20,
    notes=("the record comes from another program, machine and year",),
)

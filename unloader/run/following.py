"""What follows the tables of a run once they are published: links, and the end of older runs.

Where the directory of all tables is another one each night that is what is kept or removed, as a
whole. Where the directories of the tables are, each table has its own link and earlier runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field

from unloader.errors import FollowUpFailed, UsageError
from unloader.events import Observer
from unloader.manifest.model import Manifest, TablesManifest
from unloader.request.directory_names import home_template, is_dated
from unloader.resolve.places import is_followed
from unloader.resolve.resolved import ResolvedRun, of_route

if TYPE_CHECKING:
    from unloader.selection.choice import TablesRequest


class Following(Struct, kw_only=True):
    """Knows what is asked for, and what of it has failed."""

    run: ResolvedRun
    """Any of the tables: this is said once for all of them."""
    home: str
    of: Literal["nothing", "each table", "the run"]
    _failed: list[FollowUpFailed] = field(default_factory=list)

    @classmethod
    def of_run(cls, run: ResolvedRun, home: str, template: str | None) -> Following:
        """Return what follows a run.

        Args:
            run: Any of its tables.
            home: The directory of all of them.
            template: `--to` of several tables, with its fields; None for a single table.
        """
        outputs = [each.output for each in run.request.of_outputs()]
        if not any(map(is_followed, outputs)):
            return cls(run=run, home=home, of="nothing")
        whole = template is not None and is_dated(home_template(template))
        return cls(run=run, home=home, of="the run" if whole else "each table")

    @classmethod
    def check_asked(cls, asked: TablesRequest) -> None:
        """Check what is known of it before the source is opened.

        Raises:
            UsageError: Nights of all tables would be removed as a whole, and have several outputs.
        """
        requests = [entry.request for entry in asked.entries if len(entry.request.of_outputs()) > 1]
        outputs = [each.output for request in requests for each in request.of_outputs()]
        whole = is_dated(home_template(asked.options.destination))
        if whole and any(map(is_followed, outputs)):
            raise UsageError(
                "--keep and --latest-link apply here to the directory of all tables, but some "
                "routes of a table are outside it",
                "apply them to each table: --to '/extract/{table}/{date}'",
            )

    def check_before(self) -> None:
        """Check, before anything is read, that nothing is in the way.

        Raises:
            OutputFailed: The name of the link belongs to something else.
        """
        if self.of == "nothing":
            return
        from unloader.retention.link import check_link

        for output in self.run.outputs:
            link = output.options.latest_link
            if link is not None:
                check_link(self.home if self.of == "the run" else output.options.destination, link)

    def after(self, run: ResolvedRun, manifest: Manifest, observe: Observer) -> None:
        """Do what follows the publication of one table; never raises."""
        if self.of != "each table":
            return
        from unloader.retention.following import follow

        run = of_route(run, manifest.route.name if manifest.route else "")
        try:
            follow(run, manifest, run.output.options.destination, observe)
        except FollowUpFailed as error:
            self._failed.append(error)

    def after_all(self, manifest: TablesManifest, observe: Observer) -> None:
        """Do what follows the publication of the run; never raises."""
        if self.of != "the run":
            return
        from unloader.retention.homes import follow_tables

        try:
            follow_tables(self.run, manifest, self.home, observe)
        except FollowUpFailed as error:
            self._failed.append(error)

    def raise_failed(self) -> None:
        """Return if nothing has failed.

        Raises:
            FollowUpFailed: Something that was to follow has failed; the run is complete.
        """
        if self._failed:
            raise self._failed[0]

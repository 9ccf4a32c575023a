"""moto's server with the promises of real services for two writers at the same moment.

moto looks at a condition first and writes then, in threads, and takes every update of a table in
Glue, of any version. S3 and Glue do both as one step:
https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html and
https://docs.aws.amazon.com/glue/latest/webapi/API_UpdateTable.html (VersionId).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from io import BytesIO
from threading import Lock
from typing import Any

from moto.glue.exceptions import GlueClientError
from moto.glue.responses import GlueResponse
from moto.server import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server


class OneAtATime:
    """An application that is called for one request after the other.

    Each request is read before its turn comes, so a client that is slow holds no one up.
    """

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        """Take the application that answers."""
        self._application, self._turn = application, Lock()

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request (PEP 3333)."""
        is_chunked = environ.get("wsgi.input_terminated", False)
        length = -1 if is_chunked else int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length)
        environ["wsgi.input"] = BytesIO(body)
        with self._turn:
            return list(self._application(environ, start))


def _update_of_this_version(update: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def checked(response: Any) -> Any:
        asked = response.parameters
        version = asked.get("VersionId")
        name = asked["TableInput"]["Name"]
        table = response.glue_backend.get_table(asked["DatabaseName"], name)
        if version is not None and version != table.as_dict()["VersionId"]:
            raise GlueClientError("ConcurrentModificationException", f"{name} is at another one")
        return update(response)

    return checked


def main() -> None:
    """Serve at a free port of this host, which is printed, until the process is ended."""
    response: Any = GlueResponse
    response.update_table = _update_of_this_version(GlueResponse.update_table)
    application = OneAtATime(DomainDispatcherApplication(create_backend_app))
    handler = MotoRequestHandler
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=handler)
    print(server.port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()

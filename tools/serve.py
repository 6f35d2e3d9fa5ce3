"""Serves the built site on localhost until it is interrupted: ``python -m tools.serve``."""

import functools
import http.server
import sys

from tools.build import SITE

FIRST_PORT = 8000


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves files and does not let the browser keep old ones; says nothing."""

    def end_headers(self):
        """Add the header that makes a rebuilt page show at once."""
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_message(self, format, *arguments):
        """Say nothing."""


def server(folder=SITE, port=FIRST_PORT):
    """Return a server of ``folder`` on localhost at ``port``, or at a free one if it is taken."""
    handler = functools.partial(Handler, directory=str(folder))
    try:
        return http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError:
        return http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)


def main():
    """Serve; return the exit status."""
    if not (SITE / "index.html").exists():
        print("There is no built site yet. Type make book first.", file=sys.stderr)
        return 1
    with server() as running:
        address = f"http://localhost:{running.server_port}/"
        print(f"The book is at {address} until you type Ctrl-C.", flush=True)
        try:
            running.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0


if __name__ == "__main__":
    sys.exit(main())

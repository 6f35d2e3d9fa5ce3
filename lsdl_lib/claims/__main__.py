"""Compare, bundle and import records: ``python -m lsdl_lib.claims compare|bundle|import``."""

import argparse
import os
import sys

from lsdl_lib.claims import bundle
from lsdl_lib.claims.compare import compare


def main(arguments=None):
    """Run one command; return 0, or 2 after a message when it cannot be done."""
    parser = argparse.ArgumentParser(prog="python -m lsdl_lib.claims", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    here = os.environ.get("LSDL_RECORDS") or "_build/records"
    for name, text in [
        ("compare", "show the book's run beside yours"),
        ("bundle", "write all records of this machine to one file"),
        ("import", "merge such a file into the book's records"),
    ]:
        command = commands.add_parser(name, help=text)
        if name != "compare":
            command.add_argument("file", help="the bundle, a JSON file")
        if name != "import":
            command.add_argument("--records", default=here, help=f"your records (default {here})")
        if name != "bundle":
            command.add_argument("--book", default="book/records", help="the book's records")
    options = parser.parse_args(arguments)
    try:
        if options.command == "compare":
            print(compare(options.book, options.records))
        elif options.command == "bundle":
            chapters = bundle.make(options.records, options.file)
            print(f"{options.file}: {len(chapters)} chapters: {', '.join(chapters)}")
        else:
            print("\n".join(bundle.merge(options.file, options.book)))
    except (ValueError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

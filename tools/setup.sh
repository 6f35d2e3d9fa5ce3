#!/bin/sh
# Makes .venv with the exact packages of requirements.txt and lsdl_lib itself (editable).
#   tools/setup.sh          called by make; PYTHON=… chooses the interpreter
# Safe to call again: it does nothing when nothing changed, and goes on where it was interrupted.
set -eu
cd "$(dirname "$0")/.."
venv=.venv
log=$venv/pip.log
wanted='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'

say() { printf '%s\n' "$@"; }
stop() { printf '%s\n' "" "make: cannot go on." "$@" >&2; exit 1; }

case "$(uname -s)" in
    MINGW* | MSYS* | CYGWIN*) stop "The book does not run on native Windows. Use WSL 2: https://learn.microsoft.com/windows/wsl" ;;
esac

# --- choose an interpreter --------------------------------------------------------------------
suitable() { "$1" -c "$wanted" >/dev/null 2>&1; }
has_venv() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }
version_of() { "$1" -c 'import platform; print(platform.python_version())' 2>/dev/null || true; }

choose_python() {
    python= seen= without_venv=
    for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3 python}; do
        version=$(version_of "$candidate")
        [ -n "$version" ] || continue
        if ! suitable "$candidate"; then
            seen="$seen $candidate=$version"
        elif ! has_venv "$candidate"; then
            without_venv=${without_venv:-$candidate}
        else
            python=$candidate
            return
        fi
    done
    if [ -n "$without_venv" ]; then
        stop "$without_venv is the right Python but lacks the module venv (or ensurepip)." \
            "On Debian and Ubuntu:  sudo apt install $(basename "$without_venv")-venv" \
            "Or choose another one:  make book PYTHON=/path/to/python3.12"
    fi
    if [ -n "${PYTHON:-}" ] && [ -z "$seen" ]; then
        stop "PYTHON=$PYTHON does not start. Give the path of a Python 3.11, 3.12 or 3.13."
    fi
    stop "The book needs Python 3.11, 3.12 or 3.13. Found:${seen:- no Python at all}." \
        "Install one of them, or say where it is:  make book PYTHON=/path/to/python3.12"
}

# --- is there anything to do? -----------------------------------------------------------------
# The folder's own path is part of the state: a moved .venv has scripts that point to the old place.
state="$(cat requirements.txt constraints.txt pyproject.toml | cksum) $(pwd -P)"
if [ -n "${PYTHON:-}" ] && [ -d "$venv" ] && [ "$(version_of "$PYTHON")" != "$(version_of "$venv/bin/python")" ]; then
    say "$venv exists already, with Python $(version_of "$venv/bin/python"). To use $PYTHON:  rm -r $venv"
fi
installed=$(cat "$venv/installed" 2>/dev/null || true)
[ "$installed" != "$state" ] || [ -z "$(version_of "$venv/bin/python")" ] || exit 0
if [ -d "$venv" ]; then
    if [ -z "$(version_of "$venv/bin/python")" ]; then
        say "The Python that $venv was made with is gone: making it again."
        rm -rf "$venv"
    elif [ -n "$installed" ] && [ "${installed#* * }" != "$(pwd -P)" ]; then
        say "$venv was made in another folder: making it again."
        rm -rf "$venv"
    elif ! suitable "$venv/bin/python"; then
        stop "$venv holds Python $(version_of "$venv/bin/python"), the book needs 3.11, 3.12 or 3.13." \
            "Remove that folder and run the command again:  rm -r $venv"
    fi
fi

# --- install ----------------------------------------------------------------------------------
explain_pip() {
    if grep -qiE 'name resolution|nodename nor servname|unreachable|new connection|timed out|ProxyError|SSLError' "$log"; then
        stop "pip could not reach a package index: no network, or a proxy or mirror that pip does not know." \
            "Behind a proxy, set HTTPS_PROXY; with a mirror, set PIP_INDEX_URL. Then run the command again: it" \
            "goes on where it stopped. The whole log: $log"
    elif grep -qi 'No space left' "$log"; then
        stop "The disk is full. The packages need about 2 GB (6 GB with PyTorch's CUDA build)." "The log: $log"
    elif [ "$(uname -sm)" = "Darwin x86_64" ]; then
        stop "PyTorch has no builds for Intel Macs any more. Use an Apple Silicon Mac or Linux." "The log: $log"
    fi
    tail -n 15 "$log" >&2
    stop "pip failed; its last lines are above, all of them in $log."
}

# Says only what takes long; the rest is in the log. pip's own status decides.
run_pip() {
    { "$venv/bin/python" -m pip install --no-input --disable-pip-version-check "$@" && : >"$venv/pip.ok"; } 2>&1 |
        tee -a "$log" | { grep -E 'Downloading .*\(([0-9]{2,}(\.[0-9]+)? MB|[0-9.]+ GB)\)' || true; }
    [ -f "$venv/pip.ok" ] || explain_pip
    rm -f "$venv/pip.ok"
}

if [ ! -d "$venv" ]; then
    choose_python
    say "Making $venv with $python ($(version_of "$python"))."
    "$python" -m venv "$venv" || { rm -rf "$venv"; stop "$python -m venv failed; its message is above."; }
fi
[ -x "$venv/bin/pip" ] || "$venv/bin/python" -m ensurepip >/dev/null
: >"$log"
rm -f "$venv/installed" "$venv/pip.ok"
say "Installing the packages of requirements.txt (1 to 3 minutes; longer when PyTorch must be downloaded)."
run_pip --upgrade --constraint constraints.txt pip setuptools  # this pip resolves twice as fast as old ones
run_pip --no-compile --progress-bar off -r requirements.txt    # modules are compiled when first used
run_pip --no-deps --no-build-isolation --editable .
say "$state" >"$venv/installed"

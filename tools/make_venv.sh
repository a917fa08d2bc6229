# Makes a virtual environment, or keeps one that works: make_venv.sh PYTHON DIRECTORY
# By venv; where Debian left that out, by virtualenv; else one line says what to install.
set -eu
python=$1 venv=$2

if ! command -v "$python" >/dev/null; then
    echo "error: $python was not found; install the system package python3, or name another: make PYTHON=python3.12" >&2
    exit 1
fi
if ! "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'; then
    version=$("$python" -c 'import platform; print(platform.python_version())')
    echo "error: Python 3.11 to 3.13 is needed, $python is $version; name another: make PYTHON=python3.12" >&2
    exit 1
fi

works() { "$venv/bin/python" -m pip --version >/dev/null 2>&1; }

if works; then exit; fi
echo "Making a virtual environment in $venv"
for make in "$python -m venv --clear" "$python -m virtualenv --clear" "virtualenv --clear --python $python"; do
    if $make "$venv" >/dev/null 2>&1 && works; then exit; fi
    rm -rf "$venv" # what venv leaves behind where ensurepip is missing
done
echo "error: no virtual environment could be made; install the system package python3-venv (apt install python3-venv) and try again" >&2
exit 1

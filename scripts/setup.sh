#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what MRC Fabric needs: Debian packages by apt, Python packages by pip into .venv.
# Safe to run again; does nothing when everything is there.
#   setup.sh          the fabric and its tests
#   setup.sh shell    p4runtime-shell, in .venv-shell
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    echo "setup: $*" >&2
    exit 1
}

# python3-netifaces: PTF needs it, and PyPI has no wheel of it.
APT_PACKAGES="mininet iproute2 iputils-ping nftables ethtool tcpdump procps gcc libc6-dev python3-venv python3-netifaces"

install_apt_packages() {
    local missing=() package
    command -v dpkg-query >/dev/null && command -v apt-get >/dev/null || fail \
        "this system has no apt. Install these (Debian's names) by hand: $APT_PACKAGES"
    for package in $APT_PACKAGES; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
            missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    [ "$(id -u)" -eq 0 ] || fail "these packages are missing and need root to install: ${missing[*]}
       Run the same command as root (sudo make ...), or: apt-get install ${missing[*]}"
    echo "setup: installing ${missing[*]}"
    local log
    log=$(mktemp)
    if ! { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q \
        --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        fail "apt-get could not install: ${missing[*]}"
    fi
    rm -f "$log"
}

# make_venv DIR REQUIREMENTS [EXTRA VENV OPTION]: up to date when the stamp has the requirements' digest.
make_venv() {
    local dir=$1 requirements=$2 digest
    shift 2
    digest=$(cat "$requirements" pyproject.toml scripts/setup.sh | sha256sum | cut -d' ' -f1)
    [ "$(cat "$dir/stamp" 2>/dev/null)" = "$digest" ] && return
    echo "setup: installing $requirements into $dir"
    # Debian's own Python: Mininet is a Debian package and on no other interpreter's path.
    /usr/bin/python3 -m venv --clear "$@" "$dir"
    "$dir/bin/pip" install -qq --disable-pip-version-check --requirement "$requirements"
    if [ "$dir" = .venv ]; then
        "$dir/bin/pip" install -qq --disable-pip-version-check --no-deps --editable .
    fi
    echo "$digest" >"$dir/stamp"
}

install_apt_packages
case ${1:-} in
"") make_venv .venv requirements.txt --system-site-packages ;;
shell) make_venv .venv-shell requirements-shell.txt ;;
*) fail "unknown argument '$1'; allowed: none, or 'shell'" ;;
esac

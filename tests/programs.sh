#!/bin/sh
# Installs Debian's packages of programs that tests use, where they are missing and this user may. A
# test whose program is missing is skipped with a reason, so a failure here fails nothing.
set -u

# Programs and ODBC drivers, then the package that has them. No package starts a service.
packages=$(while read -r program package; do
    PATH=$PATH:/usr/sbin command -v "$program" >/dev/null || ls /usr/lib/*/odbc/"$program" \
        >/dev/null 2>&1 || echo "$package"
done <<'END'
mariadbd mariadb-server-core
mariadb mariadb-client-core
ip iproute2
nft nftables
iperf3 iperf3
odbcinst unixodbc
psqlodbcw.so odbc-postgresql
libmaodbc.so odbc-mariadb
libsqlite3odbc.so libsqliteodbc
END
)
[ -n "$packages" ] || exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "programs.sh: not installed: $(echo $packages)"
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
{
    apt-get -q update
    # shellcheck disable=SC2086  # One word for each package.
    apt-get -q install --yes --no-install-recommends $packages
} >/tmp/programs.log 2>&1 || echo "programs.sh: not installed: $(echo $packages); see /tmp/programs.log"

# A server of its own with InnoDB, a join and a sort.
set -e
home=$(mktemp -d /tmp/my.XXXXXX)
server=$(command -v mariadbd || echo /usr/sbin/mariadbd)
user=$(id -un)
mariadb-install-db --no-defaults --user="$user" --datadir="$home/data" --auth-root-authentication-method=normal --skip-test-db >/dev/null 2>&1
"$server" --no-defaults --user="$user" --datadir="$home/data" --socket="$home/s" --skip-networking --innodb-buffer-pool-size=96M --innodb-flush-log-at-trx-commit=0 >/dev/null 2>&1 &
pid=$!
for _ in $(seq 300); do mariadb-admin --no-defaults -u root --socket="$home/s" ping >/dev/null 2>&1 && break; sleep 0.1; done
mariadb --no-defaults -u root --socket="$home/s" -N <<'SQL'
create database d; use d;
create table t (a int primary key, c int, m char(32), key (c)) engine=innodb;
insert into t select seq, (seq * 7919) % 100003, md5(seq) from seq_1_to_150000;
select count(*), sum(x.a) from t x join t y on x.m = y.m and x.a = y.a;
select m from t order by c, a limit 2 offset 70000;
select count(*) from t where c between 1000 and 30000;
SQL
mariadb-admin --no-defaults -u root --socket="$home/s" shutdown
wait $pid || true
rm -rf "$home"

# A server of its own, a join that sorts and hashes in its backend, and an end in order.
set -e
programs=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
home=$(mktemp -d /tmp/pg.XXXXXX)
if [ "$(id -u)" = 0 ]; then
    chown postgres "$home"
    as() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
else
    as() { "$@"; }
fi
cd /
as "$programs/initdb" -N -D "$home/data" >/dev/null 2>&1
as "$programs/postgres" -D "$home/data" -k "$home" -c listen_addresses= -c work_mem=100MB -c shared_buffers=16MB -c fsync=off >/dev/null 2>&1 &
server=$!
for _ in $(seq 300); do as psql -h "$home" -d postgres -Atqc 'select 1' >/dev/null 2>&1 && break; sleep 0.1; done
as psql -h "$home" -d postgres -Atq <<'SQL'
create table t as select i a, (i::bigint * 7919) % 100003 c, md5(i::text) m from generate_series(1, 150000) i;
select count(*), sum(a) from (select t1.a from t t1 join t t2 on t1.m = t2.m) x;
select md5(string_agg(m, '' order by c, a)) from t;
SQL
as "$programs/pg_ctl" -D "$home/data" -m fast stop >/dev/null 2>&1
wait $server || true
rm -rf "$home"

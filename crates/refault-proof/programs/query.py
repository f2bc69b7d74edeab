"""DuckDB: a join and groups over generated rows, two threads."""
import duckdb

database = duckdb.connect(config={"threads": 2})
database.execute("create table a as select i, (i * 7919) % 100003 as k, md5(i::varchar) as t from range(400000) r(i)")
print(database.execute("select count(*), sum(x.i), max(y.t) from a x join a y on x.k = y.i").fetchone())
print(database.execute("select k % 1000 as g, sum(length(t)), min(t) from a group by g order by g limit 3 offset 500").fetchall())

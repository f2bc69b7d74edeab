# A group-by and a join in memory, with as much of it as DuckDB likes.
import sys
import duckdb

rows = int(sys.argv[1])
db = duckdb.connect(":memory:")
db.execute("SET threads = 2")
db.execute(f"""CREATE TABLE sale AS SELECT i AS id, (i * 7919) % 200003 AS customer, i % 1009 AS item,
    ((i * 40503) % 10007) / 7 AS price FROM range({rows}) t(i)""")
db.execute("""CREATE TABLE customer AS SELECT i AS id, 'customer ' || ((i * 31) % 200003) AS name, i % 50 AS region
    FROM range(200003) t(i)""")
for query in (
    "SELECT count(*), sum(c), max(p) FROM (SELECT customer, count(*) c, round(sum(price), 0) p FROM sale GROUP BY customer)",
    "SELECT region, count(*), count(DISTINCT name) FROM sale JOIN customer ON sale.customer = customer.id"
    " GROUP BY region ORDER BY 1 LIMIT 5",
):
    print(db.execute(query).fetchall())

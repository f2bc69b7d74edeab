"""polars: a lazy join and groups."""
import polars

count = 600_000
left = polars.LazyFrame({"i": range(count)}).with_columns(k=(polars.col("i") * 7919) % 50021, t=polars.col("i").cast(polars.String))
right = polars.LazyFrame({"k": range(50021)}).with_columns(w=polars.col("k") % 31)
result = left.join(right, on="k").group_by("w").agg(polars.col("i").sum(), polars.col("t").max()).sort("w").collect()
print(result.row(0), result.row(30), result.height)

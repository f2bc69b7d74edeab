"""pandas: a join, groups, a pivot."""
import numpy
import pandas

count = 400_000
index = numpy.arange(count)
left = pandas.DataFrame({"key": index * 7919 % 50021, "value": index % 977, "text": (index % 1009).astype(str)})
right = pandas.DataFrame({"key": numpy.arange(50021), "weight": numpy.arange(50021) % 31})
joined = left.merge(right, on="key")
groups = joined.groupby("text").agg({"value": "sum", "weight": "max"}).sort_index()
print(len(joined), int(groups["value"].sum()), groups.index[17], int(joined["weight"].sum()))

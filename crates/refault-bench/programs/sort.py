# Sorts random numbers and takes some of them in random order.
import sys
import numpy

count = int(sys.argv[1])
random = numpy.random.default_rng(1)
numbers = random.random(count)
numbers.sort()
places = random.integers(0, count, count // 8)
print(f"{numbers[::count // 16].sum():.12f} {numbers[places].sum():.3f}")

"""numpy: a product of matrices, a sort, a transform."""
import hashlib

import numpy

generator = numpy.random.default_rng(1)
matrix = generator.random((800, 800))
product = matrix @ matrix
numbers = numpy.sort(generator.random(3_000_000))
spectrum = numpy.fft.rfft(numbers[: 1 << 20])
print(hashlib.md5(numpy.round(product[:3], 6).tobytes() + numbers[::1000].tobytes()).hexdigest(), f"{abs(spectrum[7]):.6f}")

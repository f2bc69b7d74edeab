# Sorted random numbers, a product of matrices, a data frame by groups.
set.seed(1)
numbers <- runif(2e6)
sorted <- sort(numbers)
matrix <- matrix(numbers[1:360000], 600)
frame <- data.frame(key = (1:300000 * 7919) %% 1009, value = sorted[1:300000])
groups <- aggregate(value ~ key, frame, sum)
cat(sprintf("%.6f %.6f %.6f %d\n", sum(sorted[seq(1, 2e6, 1000)]), sum(matrix %*% matrix[, 1:20]), max(groups$value), nrow(groups)))

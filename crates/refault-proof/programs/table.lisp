;; A hash table of strings, read in the order of another key, across collections.
(let ((table (make-hash-table)) (count 150000) (digest 0))
  (dotimes (i count) (setf (gethash i table) (format nil "value ~a ~a" i (* i 7919))))
  (dotimes (i count) (when (zerop (mod i 3)) (setf (gethash i table) (make-string 40 :initial-element #\b))))
  (gc :full t)
  (dotimes (i count)
    (setf digest (mod (+ (* digest 31) (length (gethash (mod (* i 7919) count) table))) 1000000007)))
  (format t "~a ~a~%" digest (hash-table-count table)))

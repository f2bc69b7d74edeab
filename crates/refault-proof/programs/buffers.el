;; A large buffer, edited and searched, and a vector of strings.
(let ((strings (make-vector 100000 nil)) (digest 0))
  (dotimes (i 100000) (aset strings i (format "value %d %d" i (* i 7919))))
  (with-temp-buffer
    (dotimes (i 100000) (insert (aref strings (mod (* i 7919) 100000)) "\n"))
    (goto-char (point-min))
    (while (search-forward "77" nil t) (setq digest (mod (+ (* digest 31) (point)) 1000000007)))
    (sort-lines nil (point-min) (point-max))
    (princ (format "%d %d %s\n" digest (buffer-size) (md5 (current-buffer))))))

;; A hash table of strings and a long list, read in the order of another key.
(define count 60000)
(define table (make-hash-table))
(do ((i 0 (+ i 1))) ((= i count)) (hash-set! table i (string-append (make-string 40 #\a) (number->string i))))
(define numbers (map (lambda (i) (modulo (* i 7919) count)) (iota count)))
(define digest
  (let loop ((rest numbers) (digest 0))
    (if (null? rest) digest
        (loop (cdr rest) (modulo (+ (* digest 31) (string-length (hash-ref table (car rest)))) 1000000007)))))
(display digest) (newline)

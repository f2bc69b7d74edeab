// Keeps slices in a map, filled by four goroutines, and reads them three times.
package main

import (
	"fmt"
	"sync"
)

func main() {
	const count = 120000
	values := make([][]byte, count)
	var group sync.WaitGroup
	for part := 0; part < 4; part++ {
		group.Add(1)
		go func(part int) {
			defer group.Done()
			for i := part; i < count; i += 4 {
				bytes := make([]byte, 1000)
				for j := range bytes {
					bytes[j] = byte(i*j>>3 + i)
				}
				values[i] = bytes
			}
		}(part)
	}
	group.Wait()
	table := map[int][]byte{}
	for i, bytes := range values {
		table[i] = bytes
	}
	digest := uint32(0)
	for round := 0; round < 3; round++ {
		for i := 0; i < count; i++ {
			digest = digest*31 + uint32(table[i*7919%count][(i+round)%1000])
		}
	}
	fmt.Println(digest, len(table))
}

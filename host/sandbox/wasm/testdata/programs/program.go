// Command program is work for the Go runtime, n times over: sorting, maps, JSON,
// a hash, compression, channels.
package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
)

func main() {
	n := 1
	if len(os.Args) > 1 {
		n, _ = strconv.Atoi(os.Args[1])
	}
	seed := uint32(1)
	next := func() uint32 {
		seed = seed*1664525 + 1013904223
		return seed
	}
	for range n {
		v := make([]uint32, 20_000)
		for i := range v {
			v[i] = next()
		}
		slices.Sort(v)
		words := map[string]int{}
		for _, x := range v {
			words[fmt.Sprint("w", x%500)]++
		}
		text, err := json.Marshal(words)
		if err != nil {
			panic(err)
		}
		var back map[string]int
		if err := json.Unmarshal(text, &back); err != nil {
			panic(err)
		}
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		for range 20 {
			z.Write(text)
		}
		z.Close()
		sum := 0
		numbers := make(chan int)
		go func() {
			defer close(numbers)
			for i := range 2000 {
				numbers <- i
			}
		}()
		for i := range numbers {
			sum += i
		}
		fmt.Printf("%d %d %d %x %d\n", v[10_000], back["w17"], packed.Len(), sha256.Sum256(bytes.Repeat(text, 20)), sum)
	}
}

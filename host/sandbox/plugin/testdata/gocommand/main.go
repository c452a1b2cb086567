// Command gocommand is a SCRIPT job in plain Go. Its first argument says what
// to do.
package main

import (
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"time"
)

func main() {
	switch os.Args[1] {
	case "tell":
		for i, a := range os.Args {
			fmt.Printf("arg %d %s\n", i, a)
		}
		env := os.Environ()
		sort.Strings(env)
		for _, e := range env {
			fmt.Println("env", e)
		}
		in, err := io.ReadAll(os.Stdin)
		fmt.Printf("stdin %q %v\n", in, err)
		fmt.Fprintln(os.Stderr, "and an error line")
	case "exit":
		var code int
		fmt.Sscan(strings.TrimSpace(os.Args[2]), &code)
		fmt.Fprintln(os.Stderr, "leaving")
		os.Exit(code)
	case "panic":
		panic("script went wrong")
	case "spin":
		for {
		}
	case "sleep":
		time.Sleep(time.Hour)
	}
}

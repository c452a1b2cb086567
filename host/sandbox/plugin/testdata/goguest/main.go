// Command goguest is a job in plain Go. What it does is chosen by the job's
// parameter. Built with -buildmode=c-shared.
package main

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"
)

//go:wasmimport job_v1 ctx_str
//go:noescape
func ctxStr(field uint32, buf unsafe.Pointer, limit uint32) int32

//go:wasmimport job_v1 log
//go:noescape
func logLine(level int32, msg unsafe.Pointer, n uint32, kv unsafe.Pointer, kvn uint32)

func say(s string) { logLine(0, unsafe.Pointer(unsafe.StringData(s)), uint32(len(s)), nil, 0) }

func parameter() (word, rest string) {
	var b [512]byte
	n := ctxStr(4, unsafe.Pointer(&b), uint32(len(b)))
	word, rest, _ = strings.Cut(string(b[:max(n, 0)]), ":")
	return
}

//go:wasmexport job_abi_v1
func marker() {}

var calls int

//go:wasmexport job_execute
func execute() int32 {
	calls++
	word, rest := parameter()
	switch word {
	case "noop":
	case "panic":
		panic("went wrong")
	case "exit":
		os.Exit(0)
	case "spin":
		for i := 0; ; i++ {
			calls += i
		}
	case "sleep":
		d, _ := time.ParseDuration(rest)
		time.Sleep(d)
	case "alloc":
		var keep [][]byte
		for {
			keep = append(keep, make([]byte, 1<<20))
		}
	case "deadlock":
		select {}
	case "calls":
		say(fmt.Sprint(calls))
	case "now":
		say(time.Now().UTC().Format(time.RFC3339Nano))
	case "random":
		var b [8]byte
		rand.Read(b[:])
		say(hex.EncodeToString(b[:]))
	case "env":
		say(strings.Join(os.Args, "|"))
		say(strings.Join(os.Environ(), "|"))
	case "read":
		b, err := os.ReadFile(rest)
		if err != nil {
			say("error: " + err.Error())
			return 1
		}
		say(string(b))
	case "write":
		if err := os.WriteFile(rest, []byte("x"), 0o600); err != nil {
			say("error: " + err.Error())
			return 1
		}
	case "walk":
		err := filepath.WalkDir(rest, func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if info, err := d.Info(); err == nil && !d.IsDir() {
				p += fmt.Sprintf(" %d", info.Size())
			}
			say(p)
			return nil
		})
		if err != nil {
			say("error: " + err.Error())
			return 1
		}
	case "open-many":
		n := 0
		for ; n < 1000; n++ {
			f, err := os.Open(rest)
			if err != nil {
				break
			}
			defer f.Close()
		}
		say(fmt.Sprint(n))
	default:
		return 99
	}
	return 0
}

func main() {}

// Command soak watches a cluster for hours: one ZooKeeper, three hosts and 200
// jobs, whose modules and definitions are replaced every few seconds, with a
// fault now and then. It measures what all of them use, and fails if anything
// grows or a promise is broken. "make soak-cluster" runs it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/wasmjob/wasmjob/coordination/registry"
	"github.com/wasmjob/wasmjob/coordination/registry/zookeeper"
	"github.com/wasmjob/wasmjob/test/chaos"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil || !ok {
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context) (ok bool, err error) {
	o := chaos.SoakOptions{Dial: dial, Say: func(line string) { fmt.Fprintln(os.Stderr, line) }}
	flag.StringVar(&o.Program, "program", "bin/wasmjob", "the host to run")
	flag.StringVar(&o.Dir, "dir", "", "keep everything in this directory, which must be empty (default: a temporary one)")
	flag.DurationVar(&o.Duration, "duration", 2*time.Hour, "for how long")
	flag.IntVar(&o.Jobs, "jobs", 200, "how many jobs")
	flag.DurationVar(&o.Fault, "fault", 2*time.Minute, "how often a fault is made; longer than -duration for none")
	flag.DurationVar(&o.SessionTimeout, "session", 10*time.Second, "the session timeout of the hosts")
	flag.Uint64Var(&o.Seed, "seed", 1, "makes the choices")
	modules := flag.String("modules", "", "modules in Go that some of the jobs are of, separated by commas: cities.wasm and slow.wasm")
	judge := flag.String("judge", "", "only judge what a soak has written to this directory, which may still run")
	flag.Parse()
	var r *chaos.SoakReport
	if *judge != "" {
		r, err = chaos.JudgeSoak(ctx, *judge)
	} else {
		if *modules != "" {
			o.Modules = strings.Split(*modules, ",")
		}
		if o.Program, err = filepath.Abs(o.Program); err != nil {
			return false, err
		}
		if o.Dir == "" {
			if o.Dir, err = os.MkdirTemp("", "wasmjob-soak-"); err != nil {
				return false, err
			}
		}
		fmt.Fprintln(os.Stderr, "everything is kept in", o.Dir)
		r, err = chaos.Soak(ctx, o)
	}
	if err != nil {
		return false, err
	}
	r.Write(os.Stdout)
	return r.OK(), nil
}

func dial(ctx context.Context, connect string, timeout time.Duration) (registry.Center, error) {
	s, err := zookeeper.Dial(ctx, zookeeper.Options{Connect: connect, SessionTimeout: timeout})
	if err != nil {
		return nil, err
	}
	return s, nil
}

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
)

// asProgram has the test's binary be the program that the cluster runs.
const asProgram = "WASMJOB_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "" {
		os.Exit(m.Run())
	}
	switch args := strings.Join(os.Args[1:], " "); {
	case args == "access login --admin 127.0.0.1:9771":
		fmt.Println("http://127.0.0.1:9771/login/link?code=secret")
	case args == "access login --admin 127.0.0.1:9772":
		os.Exit(1)
	case os.Args[1] == "run":
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		<-ctx.Done()
	}
}

// TestConsole: what the cluster says at last has the console's address; in a terminal it signs a
// browser in, and elsewhere, in a log, no link is left.
func TestConsole(t *testing.T) {
	t.Setenv(asProgram, "yes")
	c := cluster{program: os.Args[0], job: "cities", servers: "127.0.0.1:2181", grants: "plugins/grants.yaml", dir: t.TempDir()}
	if err := c.start(0); err != nil {
		t.Fatal(err)
	}
	defer c.end()
	c.hosts[0].admin = "127.0.0.1:9771"
	said := func() string {
		t.Helper()
		var out bytes.Buffer
		c.out = &out
		console, err := c.console(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c.help(console)
		if strings.Contains(out.String(), "%!") {
			t.Error(out.String())
		}
		for _, want := range []string{"--grants plugins/grants.yaml\n", "job verify --settle 1m "} { // less makes verify warn
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q is not in\n%s", want, out.String())
			}
		}
		return out.String()
	}
	if text := said(); !strings.Contains(text, "http://127.0.0.1:9771/ ") || !strings.Contains(text, "access login --admin 127.0.0.1:9771") || strings.Contains(text, "secret") {
		t.Errorf("in a file:\n%s", text)
	}
	c.terminal = true
	if text := said(); !strings.Contains(text, "The console: http://127.0.0.1:9771/login/link?code=secret  (") {
		t.Errorf("in a terminal:\n%s", text)
	}
	c.hosts[0].admin = "127.0.0.1:9772"
	if console, err := c.console(t.Context()); err == nil {
		t.Errorf("a host that refuses: %q", console)
	}
}

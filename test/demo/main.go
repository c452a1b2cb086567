// Command demo starts the servers that the examples talk to, runs a command beside
// them, and ends when it does:
//
//	demo bin/wasmjob run --plugins plugins/examples --grants plugins/grants.yaml
//
// Ctrl-C reaches the command by itself, which drains; the servers stay until then.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/wasmjob/wasmjob/test/demo/server"
)

// slowest is how long a client may take for the head of its request.
const slowest = 10 * time.Second

func main() {
	d := demo{}
	flag.StringVar(&d.listen, "listen", "127.0.0.1:9780", "the servers' address; plugins/grants.yaml and the definitions name it")
	flag.StringVar(&d.out, "out", "out", "the directory for reports and the token")
	flag.StringVar(&d.sales, "sales", "plugins/examples/report/sales", "what the job report reads: it is copied to the directory of -out, if it has none yet")
	flag.Parse()
	code, err := d.run(context.Background(), flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

type demo struct{ listen, out, sales string }

// run runs the command beside the servers, and returns its exit code.
func (d *demo) run(ctx context.Context, command []string) (code int, err error) {
	if len(command) == 0 {
		return 2, errors.New("expected a command, such as bin/wasmjob run")
	}
	if err := d.directories(); err != nil {
		return 1, err
	}
	token := rand.Text()
	if err := os.WriteFile(filepath.Join(d.out, "webhook-token"), []byte(token+"\n"), 0o600); err != nil {
		return 1, err
	}
	listener, err := net.Listen("tcp", d.listen)
	if err != nil {
		return 1, fmt.Errorf("%w (does another make run go on?)", err)
	}
	routes := http.NewServeMux()
	routes.Handle("/webhook", &server.Webhook{Token: token, Busy: 2, Report: func(line string) {
		fmt.Printf("%s  webhook             %s\n", time.Now().Format(time.TimeOnly), line)
	}})
	s := &http.Server{Handler: routes, ReadHeaderTimeout: slowest}
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }() // joined below
	defer func() {
		err = errors.Join(err, s.Close())
		if failed := <-served; !errors.Is(failed, http.ErrServerClosed) {
			err = errors.Join(err, failed)
		}
	}()
	return beside(ctx, command)
}

// directories makes those that plugins/grants.yaml names.
func (d *demo) directories() error {
	if err := os.MkdirAll(filepath.Join(d.out, "reports"), 0o755); err != nil {
		return err
	}
	sales := filepath.Join(d.out, "sales")
	if _, err := os.Stat(sales); err == nil {
		return nil // somebody may have added to them
	}
	return os.CopyFS(sales, os.DirFS(d.sales))
}

// beside runs the command to its end. The terminal sends Ctrl-C to both; what else
// would end this process is passed on.
func beside(ctx context.Context, command []string) (code int, err error) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // joined by the loop
	for {
		select {
		case sig := <-signals:
			if sig != os.Interrupt {
				_ = cmd.Process.Signal(sig) // if it has ended, all the better
			}
		case err := <-ended:
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				return max(exit.ExitCode(), 1), nil
			}
			return 0, err
		}
	}
}
